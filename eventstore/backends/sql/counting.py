"""What a store holds, asked for as a whole: events by type and schema, and the aggregate snapshots of a category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import func, select

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.store import SqlEventStore
from eventstore.snapshots import AggregateSnapshot


@dataclass(frozen=True, slots=True)
class StoredForm:
    """How many events of a category were written under a type by a schema."""

    category: str
    type: str
    schema_id: int
    events: int


def stored_forms(store: SqlEventStore) -> list[StoredForm]:
    """Count the events of a store by category, type and schema, in one query. Those of deleted streams are left out.

    Raises StoreUnavailable or StoreNotPrepared.

    Examples:
        >>> stored_forms(store)
        [StoredForm(category='order', type='order.placed', schema_id=…, events=100)]
    """
    events = store.tables.events.c
    form = (events.category, events.type, events.schema_id)
    query = select(*form, func.count()).where(events.payload.is_not(None)).group_by(*form).order_by(*form)
    with Database(store.engine, store.tables).statement() as connection:
        return [StoredForm(*row) for row in connection.execute(query)]


def by_category(forms: Iterable[StoredForm]) -> Counter[str]:
    """Return how many events each category has.

    Examples:
        >>> by_category(stored_forms(store))["order"]
        100
    """
    return sum((Counter({form.category: form.events}) for form in forms), Counter())


def snapshots_of(store: SqlEventStore, category: str) -> dict[str, AggregateSnapshot]:
    """Return the aggregate snapshots of a category by their streams, in one query. Raises as `stored_forms`."""
    columns = store.tables.snapshots.c
    query = select(columns.stream, columns.version, columns.payload)
    query = query.where(columns.stream.startswith(f"{category}-", autoescape=True))
    with Database(store.engine, store.tables).statement() as connection:
        return {row.stream: AggregateSnapshot(*row) for row in connection.execute(query)}
