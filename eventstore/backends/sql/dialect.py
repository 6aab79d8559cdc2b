"""What the store asks of a database beyond plain SQL."""

# ruff: noqa: B027 - what a database need not do is nothing here

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, true
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import Batch, Inserted
from eventstore.backends.sql.models import Tables


class Dialect(ABC):
    """One database's ways with a store's tables. What a database need not do is nothing here.

    Attributes:
        single_writer: Whether a writer locks out every other one until it commits.
        remedy_away: What people can do when the database does not answer.
    """

    single_writer: bool
    remedy_away: str

    def settle(self, connection: Connection) -> None:
        """End what an engine's own events may have begun on a connection whose statements are transactions."""

    def lock(self, connection: Connection) -> None:
        """Take the write lock in a caller's transaction, where one writer locks out all others."""

    def schema_of(self, connection: Connection) -> str:
        """Return the schema that the store's tables are in, empty where there are none."""
        return ""

    def before_tables(self, connection: Connection) -> None:
        """Do what tables need and no transaction allows."""

    def guard_tables(self, connection: Connection, tables: Tables) -> None:
        """Keep other processes from changing the tables until this transaction ends, and make their schema."""

    def order_erasures(self, connection: Connection) -> None:
        """Let one transaction at a time destroy keys, until this one ends: their numbers are seen in their order."""

    def overwrite_deleted(self, connection: Connection) -> None:
        """Let nothing stay in the file of what this connection changes or deletes from now on, where that can be."""

    @abstractmethod
    def scrub(self, connection: Connection, tables: Sequence[Table]) -> list[str]:
        """Remove former rows of tables from the database's files; return what keeps some of them, for people.

        The connection is in no transaction.
        """

    @abstractmethod
    def append(self, connection: Connection, batch: Batch) -> Inserted:
        """Insert a batch; WrongExpectedVersion by what is visible, DBAPIError where a race was lost."""

    def appending(self, connection: Connection) -> frozenset[str]:
        """Return the open transactions that append, and may not see what was committed just now."""
        return frozenset()

    @abstractmethod
    def insert_rows(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        """Insert whole rows of `events` in their order; their place in the store's order is that of now."""

    def fence(self, order_xid: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition that hides events an open transaction could still come before."""
        return true()

    def fence_holder(self, connection: Connection) -> tuple[float | None, str | None]:
        """Return for how many seconds a transaction has held the fence, and its owner. What is not visible is None."""
        return 0.0, None

    @abstractmethod
    def violated(self, error: DBAPIError) -> str | None:
        """Return the name of the unique constraint an error reports."""

    def is_passing(self, error: DBAPIError) -> bool:
        """Say whether the same statement may well succeed when tried again."""
        return False

    @abstractmethod
    def not_prepared(self, error: DBAPIError) -> tuple[str, str] | None:
        """Return what the store lacks, such as a table or a right, and the remedy; None for any other error."""

    def is_pooled(self, error: DBAPIError) -> bool:
        """Say whether an error shows that a pooler gives each transaction another connection."""
        return False

    @abstractmethod
    def refused(self, error: DBAPIError) -> tuple[str, str] | None:
        """Return why the database refuses for now, by a lock or as read-only, and the remedy; None for other errors."""

    def fails_over(self, error: BaseException | None) -> bool:
        """Say whether a server takes no writes, as after a failover: nothing was appended."""
        return False
