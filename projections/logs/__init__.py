"""What projections read: the port, topics with others in front of them, and how far they reach."""
