"""A store that was restored into another cluster, whose transaction ids differ.

Readers take events whose `order_xid` lies below every open transaction. Where the old cluster had counted further, the
events are hidden until the new one has caught up. All of them are shifted by one number: their order, and what comes
after a checkpoint, stay what they were. Numbers below zero are as good as others. Events that were appended since would
lie below checkpoints, and be skipped: they are put behind all others.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Text,
    case,
    column,
    func,
    inspect,
    literal_column,
    or_,
    select,
    table,
    update,
)
from sqlalchemy import cast as cast_to

from eventstore.backends.sql.database import Database
from eventstore.errors import StoreNotPrepared
from eventstore.shown_urls import shown_url

_SLOTS: Final = (
    "select slot_name from pg_replication_slots where database = current_database() and slot_type = 'logical'"
)
# As eventstore.backends.sql.source declares it: subscriptions to the store keep their places there.
_CHECKPOINTS: Final = table("factfold_checkpoints", column("topic"), column("order_xid"))


def restored(database: Database) -> int:
    """Return how far the newest event is ahead of the next transaction id, 0 where it is behind."""
    if database.dialect.single_writer:
        return 0  # a position means the same in every file
    with database.statement() as connection:
        return _ahead(connection, database)


def renumber(database: Database, *, published: bool) -> int:
    """Shift every event, and the checkpoints of subscriptions with them; StoreNotPrepared."""
    events = database.tables.events
    if database.dialect.single_writer:
        with database.statement() as connection:
            connection.execute(select(events.c.position).limit(1))  # StoreNotPrepared for a file that is no store
        return 0
    with database.transaction() as connection:
        connection.exec_driver_sql(f"lock table {_quoted(connection, database)} in share row exclusive mode")
        by = _ahead(connection, database)
        if by and not published:
            _check_slots(connection)
        if by:
            now = cast_to(cast_to(func.pg_current_xact_id(), Text), BigInteger)
            shifted = case((_came_with_the_first(database), events.c.order_xid - by), else_=now)
            connection.execute(update(events).values(order_xid=shifted))
            places = database.tables.deleted_events
            connection.execute(update(places).values(order_xid=places.c.order_xid - by))
            _shift_checkpoints(connection, database, by)
    return by


def _ahead(connection: Connection, database: Database) -> int:
    # In one snapshot: an event that is visible has an id below the next one.
    following = cast_to(cast_to(func.pg_snapshot_xmax(func.pg_current_snapshot()), Text), BigInteger)
    newest = func.max(database.tables.events.c.order_xid)
    return max(0, connection.execute(select(newest - following + 1)).scalar() or 0)


def _came_with_the_first(database: Database) -> ColumnElement[bool]:
    """Say whether a row was written by the transaction that wrote the first: a dump is loaded by one COPY a table."""
    events = database.tables.events
    first: Select[Any] = select(literal_column("first.xmin")).select_from(events.alias("first"))
    writer = first.order_by(literal_column("first.position")).limit(1).scalar_subquery()
    return literal_column(f"{events.name}.xmin") == writer


def _quoted(connection: Connection, database: Database) -> str:
    return connection.dialect.identifier_preparer.format_table(database.tables.events)


def _check_slots(connection: Connection) -> None:
    slots = connection.exec_driver_sql(_SLOTS).scalars().all()
    if slots:
        raise StoreNotPrepared(
            f"replication slot {slots[0]!r} would publish this as updates, and an outbox connector stops at those",
            remedy='apply the connector with on_update="warn", then: factfold store renumber --published',
            place=shown_url(connection.engine.url),
            code="store-restored",
        )


def _shift_checkpoints(connection: Connection, database: Database, by: int) -> None:
    """Shift those of this store's topics, and of their branches, where they lie in the store's database."""
    if not inspect(connection).has_table(_CHECKPOINTS.name):
        return
    topics = connection.execute(select(database.tables.categories.c.topic)).scalars().all()
    columns = _CHECKPOINTS.c
    ours = [columns.topic.in_(topics), *(columns.topic.startswith(f"{topic}.", autoescape=True) for topic in topics)]
    connection.execute(update(_CHECKPOINTS).where(or_(*ours)).values(order_xid=columns.order_xid - by))
