"""What projections write to topics: views, behind the commits that changed them, and records given up."""
