"""The columns of tables that are folded from events of aggregates: declared ones, or those of the aggregate's state."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from eventstore.aggregates.aggregate import Aggregate
from eventstore.topics import DEFAULT_SOURCE, topic_of_category
from projections.declaring.columns import ColumnType, from_python
from projections.declaring.setters import Setters, agreed_type
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
