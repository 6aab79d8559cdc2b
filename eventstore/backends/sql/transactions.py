"""Transactions in a handler's database, and how to distinguish its outages from faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eventstore.backends.sql.dialect import Dialect
from eventstore.errors import FactfoldError, StoreNotPrepared, StoreUnavailable, UnsupportedBackend
from eventstore.shown_urls import shown_url

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
