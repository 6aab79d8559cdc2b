"""Records out of a log, and one staged DataFrame a table made of them."""
