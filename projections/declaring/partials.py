"""Partial aggregates: what a grouped view stores of every group besides its columns, to add changes to it.

They are columns of the generation's table whose names begin with an underscore, which no name of a user's does; what is
served does not have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from projections.declaring.columns import ColumnType

ROWS: Final = "_rows"  # how many rows a group has
WHOLE: Final = "_whole"  # in ``result_*``: the group's changes do not tell what becomes of it
BEFORE, AFTER, GROUPS = "before", "after", "groups"  # what is added up: changed rows, and what is kept of their groups
LONG: Final = ColumnType("long")


def is_hidden(column: str) -> bool:
    """Whether a column is ours, and no part of what a view shows."""
    return column.startswith("_")


def shown(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The columns that a view shows."""
    return {name: kind for name, kind in columns.items() if not is_hidden(name)}


def hidden(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The partial aggregates among the columns of a view."""
    return {name: kind for name, kind in columns.items() if is_hidden(name)}
