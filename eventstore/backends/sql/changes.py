"""Tables next to an event store on SQLite: changes of ordinary rows, as records, and the tables they belong to.

`cdc.capture_table` fills them by triggers. On PostgreSQL there are none: Debezium reads the changes from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Column, Connection, Engine, Index, Integer, MetaData, Table, Text, func, inspect, select
from sqlalchemy.exc import DBAPIError

from eventstore.backends.sql import dialect, sqlite
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.letter_rows import dead_letters_table
from eventstore.backends.sql.store import SqlEventStore
from eventstore.backends.sql.values import in_utc, keys, needed
from eventstore.shown_urls import shown_url
from eventstore.store import Category

_METADATA: Final = MetaData()

CHANGES: Final = Table(
    "factfold_changes",
    _METADATA,
    Column("position", Integer, primary_key=True),
    *needed(Text, "topic", "message_key"),
    Column("payload", Text),  # null is a tombstone
    Index("factfold_changes_topic", "topic", "position"),
    sqlite_autoincrement=True,
)
CAPTURES: Final = Table(
    "factfold_captures",
    _METADATA,
    *keys("topic"),
    Column("table_name", Text, nullable=False, unique=True),
)
# A row that is about to be written, and the row whose key equals it under a collation: the write may replace it.
RESPELLED: Final = Table("factfold_respelled", _METADATA, *keys("topic", "new_key", "old_key"))


@contextmanager
def changing(engine: Engine) -> Iterator[Connection]:
    """A transaction that no writer can come between, with the tables of changes made; StoreUnavailable for a lock."""
    try:
        with engine.begin() as connection:
            # Python's driver begins a transaction before a change of rows, and not before one of tables.
            sqlite.end_begun(connection)
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            _METADATA.create_all(connection)
            yield connection
    except DBAPIError as error:
        if reason := sqlite.refused(error):
            raise dialect.refused(*reason, error, shown_url(engine.url)) from error
        raise


@dataclass(frozen=True, slots=True)
class ScheduledStanding:
    """For how many seconds the oldest scheduled row has been due, 0 if none is, and how many rows are set aside."""

    overdue: float
    set_aside: int


def newest_events(store: SqlEventStore) -> dict[Category, datetime]:
    """Return when the newest event of each category was appended that readers see."""
    database, columns = Database(store.engine, store.tables), store.tables.events.c
    times: dict[Category, datetime] = {}
    categories = store.categories()
    with database.statement() as reading:
        for category in categories:
            visible = columns.category == category.name, database.dialect.fence(columns.order_xid)
            query = select(columns.ce_time).where(*visible, columns.payload.is_not(None))
            newest = query.order_by(columns.order_xid.desc(), columns.position.desc()).limit(1)
            if (moment := reading.execute(newest).scalar()) is not None:
                times[category] = datetime.fromisoformat(moment)
    return times


def scheduled_standing(store: SqlEventStore) -> ScheduledStanding:
    """Return what is overdue of commands and timers, and what waits for a retry by hand."""
    columns = store.tables.scheduled.c
    with Database(store.engine, store.tables).statement() as reading:
        due = reading.execute(select(func.min(columns.due))).scalar()
        aside = reading.execute(select(func.count()).where(columns.due.is_(None))).scalar_one()
    return ScheduledStanding(_overdue(due), aside)


def standing_of_processes(store: SqlEventStore) -> Mapping[str, ScheduledStanding]:
    """Return the same of each process that has anything scheduled."""
    columns = store.tables.scheduled.c
    counted = select(columns.process, func.min(columns.due), func.count() - func.count(columns.due))
    of_each = counted.where(columns.process.is_not(None)).group_by(columns.process)
    with Database(store.engine, store.tables).statement() as reading:
        return {process: ScheduledStanding(_overdue(due), aside) for process, due, aside in reading.execute(of_each)}


def _overdue(due: datetime | None) -> float:
    return 0.0 if due is None else max(0.0, (datetime.now(UTC) - in_utc(due)).total_seconds())


def stored_letters(engine: Engine) -> Mapping[tuple[str, str], int]:
    """Return how many dead letters of subscriptions that read a store are open, by topic and group."""
    table = dead_letters_table(MetaData())
    with engine.connect() as connection:
        if not inspect(connection).has_table(table.name):
            return {}
        columns = table.c
        counted = select(columns.topic, columns.subscriber, func.count()).group_by(columns.topic, columns.subscriber)
        return {(topic, group): count for topic, group, count in connection.execute(counted)}
