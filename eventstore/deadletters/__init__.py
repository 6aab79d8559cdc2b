"""Dead letters looked at and settled: listed by their cause, shown, replayed, discarded, each action written down."""
