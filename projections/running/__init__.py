"""The live loop, and what it needs to go on for years: restarts, lag, metrics, deleted rows let go of."""
