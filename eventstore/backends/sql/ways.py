"""The ways of the databases that a service may have: what code asks for, instead of which database it has.

Those of SQLite are in `sqlite`. What only a store's own tables need is in `dialect`.

PostgreSQL's ways, without its driver: a service on SQLite does without psycopg.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, Engine, MetaData, Table, Text, func, inspect, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from eventstore.backends.sql.dialect import blaming_no_record, unavailable
from eventstore.backends.sql.sqlite import Savepoint, SqliteWays
from eventstore.errors import DeclarationError, SubscriptionError, UnsupportedBackend
from eventstore.shown_urls import shown_url

POOLED: Final = frozenset({"26000", "42P05", "08P01"})
"""SQLSTATEs of a prepared statement that is not there, is there already, or is another one."""

READ_ONLY: Final = "25006"
"""SQLSTATE of a server that takes no writes."""

CREATION_LOCK: Final = 0x66616374
""""fact" as a number: two processes that create tables at once wait for each other."""

# "public" and the default one are the same store.
SCHEMA_NAME: Final = """
select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%(events)s)
"""

# 16 writers and as many again in bursts; SQLAlchemy's own default is 5 and 10.
_POOL_SIZE: Final = 16

# PQTransactionStatusType of libpq.
_PQ_IDLE: Final = 0
_PQ_IN_TRANSACTION: Final = 2
_PQ_ABORTED: Final = 3
_PQ_UNKNOWN: Final = 4

# PostgreSQL cuts an application's name at 63 bytes.
_NAME_LENGTH: Final = 50

# One round trip for a batch: the ids go as one text (a list of a thousand UUIDs takes 0.6 ms to bind), and come back
# only where some were known. They are inserted in sorted order, so that two members which get the same records wait for
# each other instead of meeting in a deadlock.
_CLAIM: Final = """
with claimed as (
    insert into factfold_inbox (subscriber, topic, event_id, time, outcome)
    select %(group)s, %(topic)s, id, now(), 'handled' from unnest(%(ids)s::uuid[]) as id order by id
    on conflict (subscriber, topic, event_id) do update set time = excluded.time, outcome = excluded.outcome
        where factfold_inbox.outcome = 'dead'
    returning event_id
)
select count(*), case when count(*) < %(size)s then array_agg(event_id) end from claimed
"""


class PostgresWays:
    """What PostgreSQL can do."""

    driver = async_driver = "psycopg"
    options: Mapping[str, Any] = {"pool_size": _POOL_SIZE, "max_overflow": _POOL_SIZE}
    has_schemas = has_sessions = True
    refuse_writes = "SET default_transaction_read_only TO on"

    def insert(self, table: Table) -> postgresql.Insert:
        """Begin an INSERT that can resolve conflicts."""
        return postgresql.insert(table)

    def claim(self, tx: Connection, group: str, topic: str, ids: Sequence[str]) -> set[str] | None:
        """Insert ids into the inbox; return those that were new, None where all were."""
        count, new = tx.exec_driver_sql(_CLAIM, _given(group, topic, ids) | {"size": len(ids)}).one()
        return None if count == len(ids) else {one.hex for one in new or ()}

    def now(self, *, ago: timedelta = timedelta(0)) -> ColumnElement[Any]:
        """Return the time at which the transaction began."""
        return func.now() - ago

    def reserve(self, tx: Connection, names: Sequence[str], space: int) -> set[str]:
        """Take a lock for each name that is free."""
        given = func.unnest(literal(names, postgresql.ARRAY(Text))).column_valued("stream")
        free = select(given).where(func.pg_try_advisory_xact_lock(func.hashtextextended(given, space)))
        return set(tx.execute(free).scalars())

    def lock_creation(self, tx: Connection) -> None:
        """Wait for another process to commit its tables."""
        tx.exec_driver_sql(f"select pg_advisory_xact_lock({CREATION_LOCK})")

    def holds_transaction(self, driver: Any) -> bool:
        """Say whether the connection is in a transaction."""
        return bool(driver.pgconn.transaction_status == _PQ_IN_TRANSACTION)

    def is_open(self, tx: Connection, driver: Any, *, lent: bool) -> bool:
        """Ask the driver; an aborted transaction would answer COMMIT by ROLLBACK, and nothing would be raised."""
        status = driver.pgconn.transaction_status
        if status == _PQ_UNKNOWN and lent:
            raise unavailable(tx.engine, ConnectionError("the connection was lost below the handler"))
        if status == _PQ_ABORTED and lent:
            raise SubscriptionError(
                "the handler went on after an error that aborted its transaction",
                remedy="let the error out, or do what may fail in `with tx.begin_nested():`",
                code="transaction-broken",
            )
        return bool(status != _PQ_IDLE)

    def mark(self, tx: Connection, driver: Any) -> Setting:
        """Mark the transaction by a setting, which opens it."""
        return Setting(tx)

    def sever(self, engine: Engine, driver: Any) -> None:
        """Shut down the socket, from any thread: while libpq waits on it as well as while Python code runs."""
        with suppress(OSError, engine.dialect.loaded_dbapi.Error):
            with socket.socket(fileno=os.dup(driver.fileno())) as shared:
                shared.shutdown(socket.SHUT_RDWR)


def _given(group: str, topic: str, ids: Sequence[str]) -> dict[str, Any]:
    return {"group": group, "topic": topic, "ids": f"{{{','.join(ids)}}}"}


class Setting:
    """The application's name, set for this transaction alone.

    PostgreSQL reports each change of it to its client, and so its return to what it was: to look costs no round trip.
    Where it differs, as for a handler that set it or behind a pooler, the time the transaction began decides.
    """

    def __init__(self, tx: Connection) -> None:
        driver: Any = tx.connection.driver_connection
        self._tx, self._pgconn = tx, driver.pgconn
        before = self._reported()
        marked = f"{before.decode(errors='ignore')[:_NAME_LENGTH]} (lent)"
        with blaming_no_record(tx.engine):
            row = tx.exec_driver_sql(
                "select transaction_timestamp(), set_config('application_name', %(name)s, true)", {"name": marked}
            ).one()
        self._since = row[0]
        self._name = self._reported()
        self._is_reported = self._name != before

    def holds(self) -> bool:
        """Say whether the transaction is the one that was marked; StoreUnavailable."""
        if not self.missing():
            return True
        with blaming_no_record(self._tx.engine):
            return bool(self._tx.exec_driver_sql("select transaction_timestamp()").scalar() == self._since)

    def missing(self) -> bool:
        """Say, of a transaction that may have failed, whether the mark is missing; raises nothing."""
        return not self._is_reported or self._reported() != self._name

    def _reported(self) -> bytes:
        return bytes(self._pgconn.parameter_status(b"application_name") or b"")


Mark: TypeAlias = Setting | Savepoint
"""A mark of a transaction, which is lost with its end."""

Ways: TypeAlias = PostgresWays | SqliteWays
"""One database's ways."""

WAYS: Final[Mapping[str, Ways]] = {"postgresql": PostgresWays(), "sqlite": SqliteWays()}


def ways_of(database: Engine | Connection) -> Ways:
    """Return the ways of a database; UnsupportedBackend."""
    if (ways := WAYS.get(database.dialect.name)) is None:
        raise _unsupported("Factfold", database.engine)
    return ways


def supported(engine: Engine, asking: str) -> Ways:
    """Return the ways of an engine's database; UnsupportedBackend, which names the part that asks."""
    ways = WAYS.get(engine.dialect.name)
    if ways is None or engine.driver not in (ways.driver, ways.async_driver):
        raise _unsupported(asking, engine)
    return ways


def _unsupported(asking: str, engine: Engine) -> UnsupportedBackend:
    return UnsupportedBackend(
        f"{asking} does not support {engine.dialect.name} through {engine.driver}",
        remedy="use postgresql+psycopg://… or sqlite:///…",
        place=shown_url(engine.url),
    )


def upsert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Begin an INSERT that can resolve conflicts."""
    return ways_of(connection).insert(table)


def create_missing(tx: Connection, metadata: MetaData) -> None:
    """Create the tables that are missing. Several processes may do so at once."""
    ways_of(tx).lock_creation(tx)
    looked = inspect(tx)
    for table in metadata.sorted_tables:
        if not looked.has_table(table.name, schema=table.schema):
            tx.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                tx.execute(CreateIndex(index, if_not_exists=True))


def check_transactional(tx: Connection) -> None:
    """Refuse an engine in autocommit mode: a claim would stay though its handler failed. DeclarationError."""
    tx.exec_driver_sql("select 1")
    if not ways_of(tx).holds_transaction(tx.connection.driver_connection):
        raise DeclarationError(
            "the engine is in autocommit mode, which has no transactions",
            remedy="give an engine without isolation_level='AUTOCOMMIT'",
            place=shown_url(tx.engine.url),
        )
