"""Archives of topics in Delta Lake: one table a topic, offsets in the table's own log."""
