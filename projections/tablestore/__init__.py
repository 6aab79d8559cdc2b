"""Where state and views live: generations of SQL tables, staging, the short transaction, runs and their progress."""
