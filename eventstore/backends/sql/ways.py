"""The ways of the databases that a service may have: what code asks for, instead of which database it has.

`postgres_ways` and `sqlite` own the differences. What only a store's own tables need is in `dialect`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, Connection, Engine, MetaData, Table, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from eventstore.backends.sql.postgres_ways import PostgresWays
from eventstore.backends.sql.sqlite import SqliteWays
from eventstore.errors import DeclarationError, UnsupportedBackend
from eventstore.shown_urls import shown_url


class Mark(Protocol):
    """A mark of a transaction, which is lost with its end."""

    def holds(self) -> bool:
        """Say whether the transaction is the one that was marked; StoreUnavailable."""

    def missing(self) -> bool:
        """Say, of a transaction that may have failed, whether the mark is missing; raises nothing."""


class Ways(Protocol):
    """One database's ways.

    Attributes:
        driver: The driver of a URL that names none.
        async_driver: The driver of such a URL for asyncio.
        options: The options of an engine.
        has_schemas: Whether a database has schemas.
        has_sessions: Whether sessions can take locks, and transactions have ids.
    """

    driver: str
    async_driver: str
    options: Mapping[str, Any]
    has_schemas: bool
    has_sessions: bool

    def insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """Begin an INSERT that takes `on_conflict_do_nothing` or `on_conflict_do_update`."""

    def claim(self, tx: Connection, group: str, topic: str, ids: Sequence[str]) -> set[str] | None:
        """Insert ids into the inbox; return those that were new, None where all were."""

    def unclaim(self, tx: Connection, group: str, topic: str, ids: Sequence[str]) -> int:
        """Delete ids from the inbox; return how many there were."""

    def now(self, *, ago: timedelta = timedelta(0)) -> ColumnElement[Any]:
        """Return the time of the database's own clock, or that of so long ago."""

    def change_key(self, tx: Connection, table: Table) -> None:
        """Give a table of an earlier release the primary key that it is declared with; no row is lost."""

    def reserve(self, tx: Connection, names: Sequence[str], space: int) -> set[str]:
        """Return those names that no other transaction has reserved, until this one ends."""

    def lock_creation(self, tx: Connection) -> None:
        """Let one process at a time create tables, where two would meet."""

    def holds_transaction(self, driver: Any) -> bool:
        """Say whether a driver's connection is in a transaction, or begins one before the first change."""

    def is_open(self, tx: Connection, driver: Any, *, lent: bool) -> bool:
        """Say whether a transaction is open; StoreUnavailable or SubscriptionError while it is lent to a handler."""

    def mark(self, tx: Connection, driver: Any) -> Mark | None:
        """Mark a transaction; None where it cannot be marked before it is open. StoreUnavailable."""

    def sever(self, engine: Engine, driver: Any) -> None:
        """Cut a driver's connection whose transaction another thread is stuck in: the database rolls it back."""


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
