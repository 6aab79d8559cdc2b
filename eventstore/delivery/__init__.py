"""From a source of events to a handler: transactions, retries, dead letters, acknowledgement."""
