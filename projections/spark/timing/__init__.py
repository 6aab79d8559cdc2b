"""Time in views, by Spark: windows, joins within bounds and as of a time, patterns."""
