"""State and views in Delta Lake: a table each, read at the versions that the group's ledger names."""
