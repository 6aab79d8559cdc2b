"""SQLite's part: one writer at a time, so heads read inside the write transaction cannot change.

SQLite's ways, by its own driver and by aiosqlite.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import Batch, Inserted
from eventstore.backends.sql.dialect import Dialect
from eventstore.backends.sql.models import TABLES_MISSING, Tables
from eventstore.backends.sql.values import rows_in
from eventstore.errors import UnsupportedBackend
from eventstore.identifiers import ARCHIVED_HEAD, DELETED_HEAD, NO_VERSION
from eventstore.topics import DELETED_TYPE, message_key

# One writer at a time makes the position the order of commits: no second number is needed.
_ORDER_XID: Final = 0
# Of an extended result code, the byte that says what kind of error it is.
_PRIMARY_CODE: Final = 0xFF
# SQLite waits for the lock only in a transaction that has not read before.
_STALE: Final = (
    "the transaction has read the event store's file before another one wrote to it",
    "run the transaction again, and begin it with BEGIN IMMEDIATE before its first read",
)
_SCRUB_MILLISECONDS: Final = 2_000
_HELD_BY_READERS: Final = (
    "the write-ahead log of the SQLite file, which another connection is using: end its transaction, and erase again"
)
_LOCKED: Final = (
    "another connection has the lock of the event store's file",
    "end the transaction that has the lock and try again; begin one that reads before it appends with BEGIN IMMEDIATE",
)
_READ_ONLY: Final = (
    "the event store's file is read-only for this user",
    "let this user write the file and its folder, or name another file",
)
_REFUSALS: Final = {
    sqlite3.SQLITE_BUSY: _LOCKED, sqlite3.SQLITE_LOCKED: _LOCKED, sqlite3.SQLITE_READONLY: _READ_ONLY,
}  # fmt: skip
_OF_ANOTHER_THREAD: Final = (
    "tables of the event store are missing: a SQLite database in memory belongs to the thread that opened it",
    "use the store in one thread, or name a file: sqlite:///shop.db. In its thread, call create_tables()",
)
_NO_DATABASE: Final = (
    "the file is no SQLite database, or it is damaged",
    "name the event store's file, or restore it from a copy",
)


class SqliteDialect(Dialect):
    """Statements only SQLite needs."""

    single_writer = True
    remedy_away = "check that the file's folder exists, and that this user may write the file and its folder"

    def __init__(self, tables: Tables, *, in_memory: bool = False) -> None:
        if tables.schema is not None:
            raise UnsupportedBackend(
                "SQLite has no schemas", remedy="give each store a file of its own", place="schema"
            )
        self._missing = _OF_ANOTHER_THREAD if in_memory else TABLES_MISSING
        self._events, self._archived = tables.events, tables.archived_streams

    def settle(self, connection: sa.Connection) -> None:
        """End what an engine has begun by an event."""
        end_begun(connection)

    def lock(self, connection: sa.Connection) -> None:
        """Take the write lock by a statement that changes nothing; a transaction that has not read yet waits for it."""
        connection.execute(sa.delete(self._archived).where(sa.false()))

    def before_tables(self, connection: sa.Connection) -> None:
        """Let readers and the writer pass each other from now on (write-ahead log)."""
        connection.execute(sa.text("pragma journal_mode=wal"))

    def overwrite_deleted(self, connection: sa.Connection) -> None:
        """Have freed parts of pages overwritten with zeros."""
        connection.exec_driver_sql("pragma secure_delete = on")

    def scrub(self, connection: sa.Connection, tables: Sequence[sa.Table]) -> list[str]:
        """Copy the write-ahead log into the file and empty it. This waits a moment for its readers."""
        before = connection.exec_driver_sql("pragma busy_timeout").scalar_one()
        connection.exec_driver_sql(f"pragma busy_timeout = {min(before, _SCRUB_MILLISECONDS)}")
        try:
            busy, *_ = connection.exec_driver_sql("pragma wal_checkpoint(truncate)").one()
        finally:
            connection.exec_driver_sql(f"pragma busy_timeout = {before}")
        return [_HELD_BY_READERS] if busy else []

    def append(self, connection: sa.Connection, batch: Batch) -> Inserted:
        """Read heads, check them, insert; the caller holds the write lock or accepts the driver's error."""
        known = self._heads(connection, batch.streams.names)
        heads = [known.get(name, NO_VERSION) for name in batch.streams.names]
        batch.check_heads(heads)
        connection.execute(sa.insert(self._events), list(_rows(batch, heads)))
        last = int(connection.execute(sa.text("select last_insert_rowid()")).scalar_one())
        positions = range(last - len(batch.events.ids) + 1, last + 1)
        return Inserted(heads, [_ORDER_XID] * len(heads), positions)

    def insert_rows(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Insert whole rows; the caller holds the write lock."""
        connection.execute(sa.insert(self._events), [{**row, "order_xid": _ORDER_XID} for row in rows])

    def _heads(self, connection: sa.Connection, names: list[str]) -> dict[str, int]:
        stream, version, kind = self._events.c.stream, self._events.c.version, self._events.c.type
        # With a maximum, SQLite returns the other columns of the row it is in.
        rows = rows_in(connection, sa.select(stream, sa.func.max(version), kind).group_by(stream), stream, names)
        heads: dict[str, int] = {name: DELETED_HEAD if of == DELETED_TYPE else head for name, head, of in rows}
        archived = self._archived.c.stream
        return heads | {name: ARCHIVED_HEAD for (name,) in rows_in(connection, sa.select(archived), archived, names)}

    def violated(self, error: DBAPIError) -> str | None:
        """Return the unique constraint that was hit."""
        message = str(error.orig)
        if "events.stream" in message:
            return "events_stream_version_key"
        return "events_id_key" if "events.id" in message else None

    def not_prepared(self, error: DBAPIError) -> tuple[str, str] | None:
        """Return what is missing: a table, a column, or the database itself."""
        if _code(error) & _PRIMARY_CODE in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return _NO_DATABASE
        missing = any(words in str(error.orig) for words in ("no such table", "no such column", "has no column named"))
        return self._missing if missing else None

    def refused(self, error: DBAPIError) -> tuple[str, str] | None:
        """Return what the lock of another connection prevents, or that the file is read-only, and the remedy."""
        return refused(error)


def refused(error: DBAPIError) -> tuple[str, str] | None:
    """Tell a transaction that read before another one wrote, which cannot write any more, from a lock in use."""
    if _code(error) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return _STALE
    return _REFUSALS.get(_code(error) & _PRIMARY_CODE)


def _code(error: DBAPIError) -> int:
    return getattr(error.orig, "sqlite_errorcode", 0)


def end_begun(connection: sa.Connection) -> None:
    """End what an engine has begun by an event, as SQLAlchemy's recipe for SQLite does: nothing was done in it."""
    if not connection.in_transaction():
        connection.begin()
    driver: Any = connection.connection.driver_connection
    if driver.in_transaction:
        connection.exec_driver_sql("rollback")


def _rows(batch: Batch, heads: list[int]) -> Iterable[dict[str, Any]]:
    streams, events = batch.streams, batch.events
    for i, stream in enumerate(events.stream):
        row = stream - 1
        version = heads[row] + events.number[i]
        yield {
            "id": events.ids[i],
            "stream": streams.names[row],
            "version": version,
            "category": streams.categories[row],
            "type": events.types[i],
            "schema_id": events.schema_ids[i],
            "payload": events.payloads[i],
            "message_key": message_key(streams.names[row], version),
            "partition": streams.partitions[row],
            "topic": streams.topics[row],
            "ce_source": batch.source,
            "time": batch.time,
            "ce_time": batch.ce_time,
            **asdict(events.metadata[i]),
            "command": events.commands[i],
            "order_xid": _ORDER_XID,
        }


# Writers wait this long for SQLite's one write lock; its own default is 5 s.
_LOCK_SECONDS: Final = 30
_SAVEPOINT: Final = "factfold_lent"

# Of the database's own clock, by which rows are forgotten as well: one subscriber's that is wrong forgets nothing.
# SQLite has milliseconds, SQLAlchemy writes and reads microseconds.
_NOW: Final = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
# `where true` keeps SQLite from reading `on conflict` as a join.
_CLAIM: Final = f"""
insert into factfold_inbox (subscriber, topic, event_id, time, outcome)
select ?, ?, value, {_NOW}, 'handled' from json_each(?) where true
on conflict (subscriber, topic, event_id) do update set time = excluded.time, outcome = excluded.outcome
    where factfold_inbox.outcome = 'dead'
returning event_id
"""  # noqa: S608 - all of it is ours


class SqliteWays:
    """What SQLite can do."""

    driver, async_driver = "pysqlite", "aiosqlite"
    options: Mapping[str, Any] = {"connect_args": {"timeout": _LOCK_SECONDS}}
    has_schemas = has_sessions = False
    refuse_writes = "PRAGMA query_only = ON"

    def insert(self, table: sa.Table) -> sqlite.Insert:
        """Begin an INSERT that can resolve conflicts."""
        return sqlite.insert(table)

    def claim(self, tx: sa.Connection, group: str, topic: str, ids: Sequence[str]) -> set[str] | None:
        """Insert ids."""
        return set(tx.exec_driver_sql(_CLAIM, (group, topic, json.dumps(ids))).scalars())

    def now(self, *, ago: timedelta = timedelta(0)) -> sa.ColumnElement[Any]:
        """Return the time of this machine, as SQLAlchemy writes it."""
        return sa.literal_column(_NOW.replace("'now'", f"'now', '-{ago.total_seconds()} seconds'"))

    def reserve(self, tx: sa.Connection, names: Sequence[str], space: int) -> set[str]:
        """Return all names: there is one writer."""
        return set(names)

    def lock_creation(self, tx: sa.Connection) -> None:
        """Nothing: a transaction that has only looked holds nobody up, and the second process finds the tables."""

    def holds_transaction(self, driver: Any) -> bool:
        """By default the driver begins before the first change. Without a level, a transaction must be open already."""
        waits = driver.isolation_level is not None and getattr(driver, "autocommit", None) is not True
        return bool(driver.in_transaction or waits)

    def is_open(self, tx: sa.Connection, driver: Any, *, lent: bool) -> bool:
        """Ask the driver."""
        try:
            return bool(driver.in_transaction)
        except ValueError:  # aiosqlite's for one that is closed: a cancelled statement cost it, and was rolled back
            return True

    def mark(self, tx: sa.Connection, driver: Any) -> Savepoint | None:
        """Mark an open transaction by a savepoint: one that stood alone would be a transaction itself."""
        return Savepoint(tx.connection.dbapi_connection) if self.is_open(tx, driver, lent=True) else None

    def sever(self, engine: sa.Engine, driver: Any) -> None:
        """Interrupt and close the connection; aiosqlite's is closed by the thread it has of its own."""
        if engine.dialect.is_async:
            driver.stop()
        else:
            driver.interrupt()
            driver.close()


class Savepoint:
    """A savepoint: SQLite releases it with the transaction, and knows no savepoint of that name afterwards."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._stands = False
        self._set()

    def holds(self) -> bool:
        """Say whether the transaction is the one that was marked; StoreUnavailable."""
        if self.missing():
            return False
        self._set()
        return True

    def missing(self) -> bool:
        """Say, of a transaction that may have failed, whether the mark is missing; raises nothing."""
        if not self._stands:
            return False
        try:
            self._execute(f"release {_SAVEPOINT}")
        except (sqlite3.Error, ValueError) as error:
            # Another error: the connection is closed, or a statement that is not read to its end holds the savepoint.
            return "no such savepoint" in str(error)
        self._stands = False
        return False

    def _set(self) -> None:
        if not self._stands:
            self._execute(f"savepoint {_SAVEPOINT}")
            self._stands = True

    def _execute(self, statement: str) -> None:
        cursor = self._driver.cursor()
        try:
            cursor.execute(statement)
        finally:
            cursor.close()
