"""Engines for the URLs of databases: one room for all stores, so that a setting in a URL holds wherever it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, ExceptionContext, QueuePool, create_engine, make_url
from sqlalchemy.event import listen
from sqlalchemy.exc import ArgumentError, InvalidRequestError, NoSuchModuleError

from eventstore.backends.sql.ways import READ_ONLY, WAYS
from eventstore.errors import FactfoldError, UnsupportedBackend
from eventstore.extras import MissingExtra, explained, require_extra
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


def engine_for(database: str | URL, **options: Any) -> Engine:
    """Open an engine for a URL; psycopg where the URL names no driver. UnsupportedBackend, also for asyncio's.

    ``options`` are those of SQLAlchemy's `create_engine`.
    """
    with _usable():
        url, usual = _with_driver(database, on_loop=False)
        engine = create_engine(url, **{**usual, **options})
        _listen(engine)
    if engine.dialect.is_async:
        raise _wrong_driver(url, "for asyncio only", "AsyncSqlEventStore")
    return engine


def engine_in_memory() -> Engine:
    """Create an engine of an SQLite database in memory, which is one connection: threads take turns with it."""
    one = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}
    return engine_for("sqlite://", connect_args={"check_same_thread": False}, **one)


@contextmanager
def opened_engine(database: str | URL) -> Iterator[Engine]:
    """Lend an engine for a URL, and dispose of it afterwards; the errors of `engine_for`."""
    engine = engine_for(database)
    try:
        yield engine
    finally:
        engine.dispose()


def refuse_writes(engine: Engine) -> Engine:
    """Let the database refuse whatever an engine's connections would write from now on; return the engine.

    Examples:
        >>> store = SqlEventStore(refuse_writes(engine_for("sqlite:///shop.db")))
    """
    statement = WAYS[engine.dialect.name].refuse_writes

    def settle(connection: Any, record: object) -> None:
        connection.execute(statement).close()
        connection.commit()

    listen(engine, "connect", settle)
    engine.dispose()  # what is connected already could write
    return engine


def url_of(database: str | URL) -> URL:
    """Return a URL without opening anything; UnsupportedBackend for what is none."""
    with _usable():
        return make_url(database)


def async_engine_for(database: str | URL) -> AsyncEngine:
    """Open an asyncio engine for a URL; psycopg or aiosqlite where it names no driver. UnsupportedBackend."""
    require_extra("async")
    from sqlalchemy.ext.asyncio import create_async_engine

    with _usable():
        url, options = _with_driver(database, on_loop=True)
        try:
            engine = create_async_engine(url, **options)
        except InvalidRequestError as error:
            raise _wrong_driver(url, "not for asyncio", "SqlEventStore") from error
        _listen(engine.sync_engine)
        return engine


def _listen(engine: Engine) -> None:
    listen(engine, "do_connect", _settle_threshold)
    listen(engine, "handle_error", _leave_read_only)


def _leave_read_only(failure: ExceptionContext) -> None:
    """Drop the connections to a server that takes no writes: after a failover, the URL leads to another one."""
    if getattr(failure.original_exception, "sqlstate", None) == READ_ONLY:
        failure.is_disconnect = True


def _settle_threshold(dialect: object, record: object, arguments: list[Any], options: dict[str, Any]) -> None:
    """Give psycopg the URL's `prepare_threshold` as it takes it: a number, or None for `none`."""
    given = options.get("prepare_threshold")
    if not isinstance(given, str):
        return
    if given != "none" and not given.isdecimal():
        raise UnsupportedBackend(
            f"prepare_threshold={given[:20]!r} in the database's URL is no number",
            remedy="write ?prepare_threshold=none, or the number of times after which a statement is prepared",
        )
    options["prepare_threshold"] = None if given == "none" else int(given)


@contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise _no_driver(error) from None
    except (ArgumentError, ImportError, ValueError) as error:  # ValueError: of a port, or of a driver's option
        # The text is not shown: it may hold a password.
        raise _unusable(error) from None


def _no_driver(error: ModuleNotFoundError) -> FactfoldError:
    missing = explained(error)
    return missing if isinstance(missing, MissingExtra) else _unusable(error)


def _unusable(error: Exception) -> UnsupportedBackend:
    unread = isinstance(error, ArgumentError | ValueError) and not isinstance(error, NoSuchModuleError)
    return UnsupportedBackend(
        "the database's URL cannot be read" if unread else "the database's URL names neither PostgreSQL nor SQLite",
        remedy="write it as postgresql+psycopg://user:password@host/database or sqlite:///file.db",
    )


def _wrong_driver(url: URL, problem: str, other: str) -> UnsupportedBackend:
    return UnsupportedBackend(
        f"the driver {url.drivername} is {problem}",
        remedy=f"name no driver, only {url.get_backend_name()}://…, or use {other}",
        place=shown_url(url),
    )


def _with_driver(database: str | URL, *, on_loop: bool) -> tuple[URL, Mapping[str, Any]]:
    """Return the URL with its driver, and the options of an engine."""
    url = make_url(database)
    if (ways := WAYS.get(url.get_backend_name())) is None:
        return url, WAYS["postgresql"].options  # another server, such as a source of changes, has as many threads
    named = url.drivername != url.get_backend_name()
    driver = ways.async_driver if on_loop else ways.driver
    return url if named else url.set(drivername=f"{url.drivername}+{driver}"), ways.options
