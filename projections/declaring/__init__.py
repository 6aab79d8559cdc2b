"""From what a user writes of a table or a view to what it means: columns, keys, conditions, setters."""
