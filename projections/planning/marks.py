"""What the metadata of columns says about them in the plan of a view."""

from __future__ import annotations

from typing import Final

from projections.planning.plans import Node

ROLE: Final = "factfold.role"  # the view's parameter that a column is of
PARTITION: Final = "factfold.partition"  # the column of ``by`` whose value it is, of a function of ours
ROW_KEY: Final = "factfold.row_key"  # that a column is of its table's key, of a view over partitions
ENTRY: Final = "factfold.entry"  # that it is an event's: id@version
NUMBERED: Final = "factfold.numbered"  # that it numbers the rows of a partition, of which match_pattern takes them
EVENT_TIME: Final = "factfold.event_time"  # that it is the event time of a stream
OF_TABLE: Final = "factfold.table"  # of which table the versions are whose validity a column is
OF_KEY: Final = "factfold.table_key"  # and by which column they are keyed
LOOKS: Final = "factfold.looks"  # how many microseconds away the rows are at most that one of these looks at
ANY_TIME: Final = -1  # of such a distance: there is none


def role(leaf: Node) -> str | None:
    """The parameter of a view whose rows a leaf of its plan has; None of other rows."""
    return next((marks.get(ROLE) for marks in leaf.marks), None)
