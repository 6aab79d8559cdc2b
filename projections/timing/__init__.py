"""Time as data: windows as keys of groups, joins within bounds and as of a time, patterns over a partition's rows."""
