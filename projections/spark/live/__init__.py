"""One batch of few changes, carried into state and views."""
