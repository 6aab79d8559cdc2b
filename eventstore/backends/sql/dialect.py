"""What the store asks of a database beyond plain SQL.

Transactions in a handler's database, and how to distinguish its outages from faults.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Table, true
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eventstore.backends.batch import Batch, Inserted
from eventstore.backends.sql.models import Tables
from eventstore.errors import FactfoldError, StoreNotPrepared, StoreUnavailable, UnsupportedBackend
from eventstore.shown_urls import shown_url

# ruff: noqa: B027 - what a database need not do is nothing here


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


# Classes of PostgreSQL's codes: connection, resources, the server going down or coming up.
_AWAY: Final = ("08", "53", "57P")
# It is there and says not now: read-only since a failover, serialization failure, deadlock, a lock not to be had.
_NOT_NOW: Final = ("25006", "40001", "40P01", "55P03")


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Lend a connection whose work is committed at the end; StoreUnavailable where the database is away."""
    try:
        with engine.begin() as tx:
            yield tx
    except (DBAPIError, PoolTimeout) as error:
        if not is_outage(error):
            raise
        raise unavailable(engine, error) from error


@contextmanager
def blaming_no_record(engine: Engine) -> Iterator[None]:
    """Run statements of our own, whose failure, whatever it is, says nothing of a record: StoreUnavailable."""
    try:
        yield
    except DBAPIError as error:
        raise unavailable(engine, error) from error


def is_outage(error: BaseException) -> bool:
    """Say whether an error is the database's being away or busy, and so no record's fault."""
    if isinstance(error, StoreUnavailable | PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return "locked" in str(error.orig)
    # psycopg gives no code where there was no connection.
    code = _code(error)
    passing = code.startswith(_AWAY + _NOT_NOW) if code else isinstance(error, OperationalError | InterfaceError)
    return error.connection_invalidated or passing


def unavailable(engine: Engine, error: BaseException) -> StoreUnavailable:
    """Build the error for a handler's database that does not answer, or not as it should."""
    why = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
    answers = bool(_code(error)) and not _code(error).startswith(_AWAY)
    return StoreUnavailable(
        f"the handler's database {'refuses' if answers else 'does not answer'}: {why}",
        remedy="check that it runs and exists, its address, user and password, rights and locks. "
        "What was not committed arrives again",
        place=shown_url(engine.url),
    )


def _code(error: BaseException) -> str:
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


@contextmanager
def typed_failures(engine: Engine, dialect: Dialect) -> Iterator[None]:
    """Raise StoreUnavailable, StoreNotPrepared or UnsupportedBackend; constraints and lost races pass unchanged."""
    try:
        yield
    except PoolTimeout as error:
        raise _unavailable("no connection became free in time", dialect, _place(engine)) from error
    except DBAPIError as error:
        known = _typed(error, dialect, _place(engine))
        if known is None:
            raise
        raise known from error


def _typed(error: DBAPIError, dialect: Dialect, place: str) -> FactfoldError | None:
    if missing := dialect.not_prepared(error):
        return StoreNotPrepared(missing[0], remedy=missing[1], place=place)
    if dialect.is_pooled(error):
        return UnsupportedBackend(
            f"a connection pooler gives each transaction another connection: {_first_line(error)}",
            remedy="write ?prepare_threshold=none into the database's URL, or let the pooler pool sessions",
            place=place,
        )
    if reason := dialect.refused(error):
        return refused(*reason, error, place)
    connecting = error.statement is None  # with an option of the URL that the driver does not take, for example
    if (connecting or isinstance(error, OperationalError | InterfaceError)) and not dialect.is_passing(error):
        return _unavailable(_first_line(error), dialect, place)
    return None


def refused(why: str, remedy: str, error: DBAPIError, place: str) -> StoreUnavailable:
    """Build the error for a statement that a lock of another connection prevents, or a database that is read-only."""
    return StoreUnavailable(f"{why}: {_first_line(error)}", remedy=remedy, place=place)


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0]


def _unavailable(why: str, dialect: Dialect, place: str) -> StoreUnavailable:
    problem = f"the event store's database does not answer: {why}"
    return StoreUnavailable(problem, remedy=dialect.remedy_away, place=place)


def _place(engine: Engine) -> str:
    return shown_url(engine.url)
