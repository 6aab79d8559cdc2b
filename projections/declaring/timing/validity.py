"""The times of a history's versions: what their columns are called, and how long a version stays after its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from projections.declaring.any_table import AnyTable
from projections.declaring.columns import ColumnType
from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from projections.declaring.group import ProjectionGroup

CURRENT: Final = "is_current"


@dataclass(frozen=True)
class Validity:
    """The columns that say when a version is valid, and for how long it stays after its end, in microseconds."""

    start: str
    end: str
    keep: int | None = None


def validity_of(group: ProjectionGroup, view: str) -> Validity:
    """The times of a history that a group serves; InvalidDefinition where it is none."""
    validities = {one.name: getattr(one.function, "validity", None) for one in group.views}
    known = {name: validity for name, validity in validities.items() if isinstance(validity, Validity)}
    if view in known:
        return known[view]
    raise InvalidDefinition(
        f"group {group.name!r} serves no history {view!r}",
        remedy=f"its histories are: {', '.join(known)}" if known else "add one: history('customer_history', customers)",
        place=f"projection group {group.name}",
    )


def columns_of(group: ProjectionGroup, view: str) -> dict[str, ColumnType]:
    """The columns of a history that a group serves, in their order; InvalidDefinition where it is none."""
    validity = validity_of(group, view)
    (versions,) = next(served for served in group.views if served.name == view).tables.values()
    assert isinstance(versions, AnyTable)  # noqa: S101 - a history is of a table
    timestamp = ColumnType("timestamp")
    times = {validity.start: timestamp, validity.end: timestamp, CURRENT: ColumnType("boolean")}
    return {**versions.columns, **times}
