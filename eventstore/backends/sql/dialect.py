"""What the store asks of a database beyond plain SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Engine, Table
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import Batch, Inserted
from eventstore.backends.sql.models import Tables
from eventstore.errors import UnsupportedBackend
from eventstore.shown_urls import shown_url


class Dialect(Protocol):
    """One database's ways."""

    @property
    def single_writer(self) -> bool:
        """Whether a writer locks out every other one until it commits."""

    def settle(self, connection: Connection) -> None:
        """End what an engine's own events may have begun on a connection whose statements are transactions."""

    def lock(self, connection: Connection) -> None:
        """Take the write lock in a caller's transaction, where one writer locks out all others."""

    def schema_of(self, connection: Connection) -> str:
        """Return the schema that the store's tables are in, empty where there are none."""

    def before_tables(self, connection: Connection) -> None:
        """Do what tables need and no transaction allows."""

    def guard_tables(self, connection: Connection, tables: Tables) -> None:
        """Keep other processes from changing the tables until this transaction ends, and make their schema."""

    def order_erasures(self, connection: Connection) -> None:
        """Let one transaction at a time destroy keys, until this one ends: their numbers are seen in their order."""

    def overwrite_deleted(self, connection: Connection) -> None:
        """Let nothing stay in the file of what this connection changes or deletes from now on, where that can be."""

    def scrub(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """Remove former rows of tables from the database's files; return what keeps some of them, for people.

        The connection is in no transaction.
        """

    def append(self, connection: Connection, batch: Batch) -> Inserted:
        """Insert a batch; WrongExpectedVersion by what is visible, DBAPIError where a race was lost."""

    def appending(self, connection: Connection) -> frozenset[str]:
        """Return the open transactions that append, and may not see what was committed just now."""

    def insert_rows(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Insert whole rows of `events` in their order; their place in the store's order is that of now."""

    def fence(self, order_xid: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition that hides events an open transaction could still come before."""

    def fence_holder(self, connection: Connection) -> tuple[float | None, str | None]:
        """Return for how many seconds a transaction has held the fence, and its owner. What is not visible is None."""

    def violated(self, error: DBAPIError) -> str | None:
        """Return the name of the unique constraint an error reports."""

    def is_passing(self, error: DBAPIError) -> bool:
        """Say whether the same statement may well succeed when tried again."""

    def not_prepared(self, error: DBAPIError) -> tuple[str, str] | None:
        """Return what the store lacks, such as a table or a right, and the remedy; None for any other error."""

    def is_pooled(self, error: DBAPIError) -> bool:
        """Say whether an error shows that a pooler gives each transaction another connection."""

    def refused(self, error: DBAPIError) -> tuple[str, str] | None:
        """Return why the database refuses for now, by a lock or as read-only, and the remedy; None for other errors."""


def dialect_of(engine: Engine, tables: Tables) -> Dialect:
    """Return the ways of an engine's database; UnsupportedBackend."""
    # Imported where chosen: psycopg is an extra, and the embedded store does without it.
    if (engine.dialect.name, engine.driver) == ("postgresql", "psycopg"):
        from eventstore.backends.sql.postgres import PostgresDialect  # needs the extra postgres

        return PostgresDialect(tables, user=engine.url.username)
    if (engine.dialect.name, engine.driver) in (("sqlite", "pysqlite"), ("sqlite", "aiosqlite")):
        from eventstore.backends.sql.sqlite import SqliteDialect  # SQLAlchemy is loaded when it is first used

        return SqliteDialect(tables, in_memory=engine.url.database in (None, "", ":memory:"))
    raise UnsupportedBackend(
        f"the event store does not support {engine.dialect.name} through {engine.driver}",
        remedy="use postgresql+psycopg://… or sqlite:///…",
        place=shown_url(engine.url),
    )
