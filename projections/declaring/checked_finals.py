"""Final results: rows of a view that are given out once, when a promise says that they do not change any more.

A view corrects itself for ever. A bill, a mail or another system that cannot take corrections reads final results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from projections.declaring.any_table import AnyTable
from projections.declaring.finals import FinalResults
from projections.declaring.views import View
from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from projections.declaring.columns import ColumnType


def require_time(view: str, final: FinalResults, column: ColumnType | None) -> None:
    """Refuse a time of final results that the view does not have, or that is no timestamp; InvalidDefinition."""
    if column is not None and column.kind == "timestamp":
        return
    raise InvalidDefinition(
        f"view {view!r} is final by {final.on!r}, which is {'no column of it' if column is None else column.ddl}",
        remedy="name a timestamp that the view returns, such as window_end",
        place=f"view {view}",
    )


def check_finals(views: Iterable[View]) -> None:
    """Raise InvalidDefinition where final results could have personal values: no erasure would ever reach these."""
    for view in views:
        for column in _personal_columns(view) if view.final is not None else ():
            raise InvalidDefinition(
                f"view {view.name!r} has final results, which no erasure changes, and reads personal column {column!r}",
                remedy="let the view read a table that is declared without the column, or leave final=… away",
                place=view.place,
            )


def _personal_columns(view: View) -> Iterator[str]:
    for table in view.tables.values():
        yield from table.personal if isinstance(table, AnyTable) else ()
    for read in view.inputs:
        yield from _personal_columns(read)


def has_finals(views: Iterable[View]) -> bool:
    """True if any of the views has final results."""
    return any(view.final is not None for view in views)
