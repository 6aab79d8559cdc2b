"""The live loop, and what it needs to go on for years: sizes, restarts, lag, metrics, deleted rows let go of."""
