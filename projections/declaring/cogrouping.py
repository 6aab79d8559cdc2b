"""Several aggregates of one id as one table: a table of each, in a view that joins them.

A row of a state is a stream, with one version and one deletion; so each aggregate keeps a state of its own, and what
they say of one id meets in the view (docs/decisions/0049).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eventstore.aggregates.aggregate import Aggregate
from eventstore.identifiers import snake_case
from projections.declaring.any_table import AnyTable
from projections.declaring.binding import bind
from projections.declaring.naming import checked_identifier
from projections.declaring.setters import Setter, Setters
from projections.declaring.views import View
from projections.errors import InvalidDefinition


def cogrouped(
    aggregates: Sequence[type[Aggregate]],
    *,
    key: str,
    columns: Setters | None,
    name: str | None,
    topic: str | None,
    table: Callable[[type[Aggregate], Setters | None], AnyTable],
) -> View:
    """Return a view with one row for each id of any aggregate, and the columns of all. Raises InvalidDefinition.

    ``name`` is the view's, and begins the names of its tables. ``table`` makes the table of one aggregate.
    """
    name = _checked_name(aggregates, name, topic)
    own = dict.fromkeys(aggregates) if columns is None else _by_owner(aggregates, columns)
    names = {aggregate: f"{name}_{snake_case(aggregate.__name__)}" for aggregate in aggregates}
    tables = {names[aggregate]: table(aggregate, own[aggregate]) for aggregate in aggregates}
    _require_apart(names, tables)
    return bind(name, FullJoin(key, tuple(tables)), tables, key=(key,))


def _checked_name(aggregates: Sequence[type[Aggregate]], name: str | None, topic: str | None) -> str:
    names = [aggregate.__name__ for aggregate in aggregates]
    place = ", ".join(names)
    if name is None:
        raise InvalidDefinition(
            "a table of several aggregates is stored as a view, and has no name", remedy="pass name='…'", place=place
        )
    if topic is not None or len(set(names)) < len(names):
        raise InvalidDefinition(
            f"aggregates of table {name!r} come {'from one topic' if topic else 'twice'}",
            remedy="name each once, read from its own topic. Tables over topics of other names are joined in a view: "
            "@view(key='order_id'), with a full join",
            place=place,
        )
    return checked_identifier(name, what="table")


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


def _require_apart(names: Mapping[type[Aggregate], str], tables: Mapping[str, AnyTable]) -> None:
    taken: dict[str, str] = {}
    for aggregate, name in names.items():
        for column in tables[name].payload:
            if column in taken:
                raise InvalidDefinition(
                    f"column {column!r} of {aggregate.__name__} is one of {taken[column]} already",
                    remedy="declare the columns with names of their own: columns={…}",
                    place=name,
                )
            taken[column] = aggregate.__name__
