"""What happened: events of stores and topics to look at, states of streams, traces, events delivered again."""
