"""What a user needs to test with the event store, and what a backend must pass."""
