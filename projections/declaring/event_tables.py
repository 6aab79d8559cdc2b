"""The columns of tables that are folded from events of aggregates: declared ones, or those of the aggregate's state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from eventstore.aggregates.aggregate import Aggregate
from eventstore.identifiers import snake_case
from eventstore.topics import DEFAULT_SOURCE, topic_of_category
from projections.declaring.any_table import AnyTable
from projections.declaring.binding import bind
from projections.declaring.columns import ColumnType, Setter, Setters, agreed_type, from_python
from projections.declaring.naming import checked_identifier
from projections.declaring.views import View
from projections.errors import InvalidDefinition


def folded_columns(aggregate: type[Aggregate], setters: Setters | None, *, key: str) -> dict[str, ColumnType]:
    """Return the columns of one aggregate's table: declared ones, or its state's. Raises InvalidDefinition."""
    _require_key_apart(aggregate, key, aggregate.state_fields() if setters is None else setters)
    own = _evolved_columns(aggregate) if setters is None else _declared_columns(aggregate, setters)
    return {key: ColumnType("string"), **own}


def topic_of(aggregate: type[Aggregate], source: str | None) -> str:
    """The topic that the service of a source gives an aggregate's events; the category where none is named."""
    return topic_of_category(aggregate.category, source=DEFAULT_SOURCE if source is None else source)


def require_aggregates(given: Sequence[Any]) -> None:
    """Refuse anything but aggregates, and an empty list. Raises InvalidDefinition."""
    wrong = [one for one in given if not (isinstance(one, type) and issubclass(one, Aggregate))]
    if wrong or not given:
        raise InvalidDefinition(
            f"a table is folded from aggregates, and is given {', '.join(map(repr, wrong)) or 'none'}",
            remedy="give the classes one by one: Table.from_events(Order, Payment, key='order_id', name='orders')",
        )


def _require_key_apart(aggregate: type[Aggregate], key: str, columns: Collection[str]) -> None:
    if key in columns:
        raise InvalidDefinition(
            f"column {key!r} of {aggregate.__name__} is its key too",
            remedy="give the key a name of its own: it is the aggregate's id",
        )


def _declared_columns(aggregate: type[Aggregate], setters: Setters) -> dict[str, ColumnType]:
    columns = {column: agreed_type(column, choices, place=aggregate.__name__) for column, choices in setters.items()}
    _require_own_events(aggregate, setters)
    return columns


def _require_own_events(aggregate: type[Aggregate], setters: Setters) -> None:
    known = set(aggregate.event_types)
    for column, choices in setters.items():
        for setter in choices:
            if setter.event.name not in known:
                raise InvalidDefinition(
                    f"column {column!r} is set by {setter.event.name}, which is no event of {aggregate.__name__}",
                    remedy=f"its events are: {', '.join(sorted(known))}. One that other aggregates set too is"
                    " Table.from_events of them all",
                )


def _require_clear(aggregate: type[Aggregate]) -> None:
    for kind in aggregate.event_types.values():
        if kind.personal:
            raise InvalidDefinition(
                f"{kind.name} has personal fields, and what evolve makes of them could not be forgotten",
                remedy="declare the columns: Table.from_events(…, columns={…}). They are stored sealed",
                place=aggregate.__name__,
            )


def _evolved_columns(aggregate: type[Aggregate]) -> dict[str, ColumnType]:
    _require_clear(aggregate)
    return {
        state_field: from_python(annotation, place=f"{aggregate.__name__}.{state_field}")
        for state_field, annotation in aggregate.state_fields().items()
    }


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
