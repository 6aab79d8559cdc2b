"""A new generation beside the one that serves: built, compared, verified, switched to."""
