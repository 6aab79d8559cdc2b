"""Tables folded from the events of aggregates: declared columns, or the aggregate's own code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eventstore.aggregates.aggregate import Aggregate
from eventstore.topics import DEFAULT_SOURCE, topic_of_category
from projections.columns import ColumnType, from_python
from projections.declaring.setters import Setter, agreed_type
from projections.errors import InvalidDefinition
from projections.tables import Declared, EventTable, Setters

if TYPE_CHECKING:
    from projections.views import View


def folded(
    aggregates: Sequence[type[Aggregate]],
    *,
    key: str,
    columns: Declared | None,
    name: str | None,
    topic: str | None,
    source: str | None,
) -> EventTable | View:
    """The table of one aggregate, or of several of one id; InvalidDefinition."""
    _require_aggregates(aggregates)
    setters = None
    if columns is not None:
        setters = {c: (s,) if isinstance(s, Setter) else tuple(s) for c, s in columns.items()}
    if len(aggregates) > 1:
        return _of_several(aggregates, key=key, columns=setters, name=name, topic=topic, source=source)
    (aggregate,) = aggregates
    topic = topic or topic_of(aggregate, source)
    _require_key_apart(aggregate, key, aggregate.state_fields() if setters is None else setters)
    if setters is None:
        table = _evolved_table(aggregate, name=name, topic=topic, key=key)
    else:
        table = _declared_table(aggregate, setters, name=name, topic=topic, key=key)
    return replace(table, source=source)


def topic_of(aggregate: type[Aggregate], source: str | None) -> str:
    """The topic that the service of a source gives an aggregate's events; the category where none is named."""
    return topic_of_category(aggregate.category, source=DEFAULT_SOURCE if source is None else source)


def _require_aggregates(given: Sequence[Any]) -> None:
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


def _of_several(
    aggregates: Sequence[type[Aggregate]],
    *,
    key: str,
    columns: Setters | None,
    name: str | None,
    topic: str | None,
    source: str | None,
) -> View:
    from projections.declaring.cogrouping import cogrouped

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
            "@view(key='order_id', roots=(orders, payments))",
            place=place,
        )
    return cogrouped(aggregates, key=key, columns=columns, name=name, source=source)


def _declared_table(
    aggregate: type[Aggregate], setters: Setters, *, name: str | None, topic: str, key: str
) -> EventTable:
    columns = {key: ColumnType("string")}
    for column, choices in setters.items():
        columns[column] = agreed_type(column, choices, place=aggregate.__name__)
    _require_own_events(aggregate, setters)
    return EventTable(topic, (key,), columns, name=name, aggregate=aggregate, setters=setters)


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


def _evolved_table(aggregate: type[Aggregate], *, name: str | None, topic: str, key: str) -> EventTable:
    _require_clear(aggregate)
    columns = {key: ColumnType("string")}
    for state_field, annotation in aggregate.state_fields().items():
        columns[state_field] = from_python(annotation, place=f"{aggregate.__name__}.{state_field}")
    return EventTable(topic, (key,), columns, name=name, aggregate=aggregate, setters=None)
