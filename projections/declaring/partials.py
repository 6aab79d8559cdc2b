"""Columns of a stored view that it does not show: partial aggregates of its groups, and columns of its partitions.

Their names begin with an underscore, which no name of a user's does. What is served does not have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from projections.declaring.columns import ColumnType

ROWS: Final = "_rows"  # how many rows a group has
WHOLE: Final = "_whole"  # in ``result_*``: the group's changes do not tell what becomes of it
BEFORE, AFTER, GROUPS = "before", "after", "groups"  # what is added up: changed rows, and what is kept of their groups
SCOPE: Final = "_by_"  # before the name of a column of partitions that a query does not return
LONG: Final = ColumnType("long")


def is_partial(column: str) -> bool:
    """Whether a column holds a partial aggregate."""
    return column.startswith("_") and not column.startswith(SCOPE)


def shown(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The columns that a view shows."""
    return {name: kind for name, kind in columns.items() if not name.startswith("_")}


def hidden(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The partial aggregates among the columns of a view."""
    return {name: kind for name, kind in columns.items() if is_partial(name)}
