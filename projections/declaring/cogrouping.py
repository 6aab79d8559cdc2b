"""Several aggregates of one id as one table: a table of each, in a view of which all of them are roots.

A row of a state is a stream, with one version and one deletion; so each aggregate keeps a state of its own, and what
they say of one id meets in the view (docs/decisions/0049).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from eventstore.aggregates.aggregate import Aggregate
from eventstore.identifiers import snake_case
from projections.declaring.binding import bind
from projections.declaring.naming import checked_identifier
from projections.declaring.setters import Setter
from projections.errors import InvalidDefinition
from projections.tables import EventTable, Setters, Table
from projections.views import Declaration, View


def cogrouped(
    aggregates: Sequence[type[Aggregate]], *, key: str, columns: Setters | None, name: str, source: str | None
) -> View:
    """One row an id that any of the aggregates has, with the columns of all; InvalidDefinition.

    ``name`` is the view's, and begins the names of its tables.
    """
    checked_identifier(name, what="table")
    own = dict.fromkeys(aggregates) if columns is None else _by_owner(aggregates, columns)
    tables = {
        f"{name}_{snake_case(aggregate.__name__)}": Table.from_events(
            aggregate, key=key, columns=own[aggregate], source=source
        )
        for aggregate in aggregates
    }
    _require_apart(tables)
    declared = Declaration(name, (key,), (), {}, roots=tuple(tables))
    return bind(declared, FullJoin(key, tuple(tables)), tables)


class FullJoin:
    """The function of such a view: the tables joined by their key, which has one column for all."""

    def __init__(self, key: str, tables: Sequence[str]) -> None:
        self._key = key
        self.signature = f"full join of {', '.join(tables)} by {key}"

    def __call__(self, *frames: Any) -> Any:
        """All rows, joined by their keys."""
        return functools.reduce(lambda one, other: one.join(other, self._key, "full"), frames)


def _by_owner(aggregates: Sequence[type[Aggregate]], columns: Setters) -> dict[type[Aggregate], Setters]:
    """Each aggregate's columns: versions of two streams have no order, so a last event of both does not exist."""
    owned: dict[type[Aggregate], dict[str, tuple[Setter, ...]]] = {aggregate: {} for aggregate in aggregates}
    for column, setters in columns.items():
        owners = [a for a in aggregates if any(setter.event in a.event_types.values() for setter in setters)]
        if len(owners) != 1:
            raise InvalidDefinition(
                f"column {column!r} is set by events of {_names(owners, ' and ') or 'none of the aggregates'}",
                remedy="let each column be set by the events of one of them. A view can put two columns together",
                place=_names(aggregates, ", "),
            )
        owned[owners[0]][column] = setters
    return dict(owned)


def _names(aggregates: Sequence[type[Aggregate]], between: str) -> str:
    return between.join(aggregate.__name__ for aggregate in aggregates)


def _require_apart(tables: Mapping[str, EventTable]) -> None:
    taken: dict[str, str] = {}
    for name, table in tables.items():
        for column in table.payload:
            if column in taken:
                raise InvalidDefinition(
                    f"column {column!r} of {table.aggregate.__name__} is one of {taken[column]} already",
                    remedy="declare the columns with names of their own: columns={…}",
                    place=name,
                )
            taken[column] = table.aggregate.__name__
