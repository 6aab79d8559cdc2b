"""View functions: planned, checked, called with the rows that they may see."""
