"""Transactions in a handler's database, and how to distinguish its outages from faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eventstore.errors import StoreUnavailable
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
