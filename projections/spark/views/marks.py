"""What the metadata of columns says to whoever reads the plan of a view."""

from __future__ import annotations

from typing import Final

ROLE: Final = "factfold.role"  # the view's parameter that a column is of
PARTITION: Final = "factfold.partition"  # the column of ``by`` whose value it is, of a function of ours
ROW_KEY: Final = "factfold.row_key"  # that a column is of its table's key, of a view over partitions
ENTRY: Final = "factfold.entry"  # that it is an event's: id@version
NUMBERED: Final = "factfold.numbered"  # for how many microseconds a match of the rows looks on, -1 if for ever
