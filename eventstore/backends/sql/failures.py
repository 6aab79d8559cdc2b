"""The driver's errors in the words of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from eventstore.backends.sql.dialect import Dialect
from eventstore.errors import FactfoldError, StoreNotPrepared, StoreUnavailable, UnsupportedBackend
from eventstore.shown_urls import shown_url


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
