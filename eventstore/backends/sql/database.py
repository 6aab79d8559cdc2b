"""One engine, its dialect, and the two ways to use a connection: single statements and transactions.

The engine may be the `sync_engine` of an asyncio one: what is done with it, in a greenlet, lets the loop go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, Engine, Table, create_engine, make_url
from sqlalchemy.event import listen
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidRequestError

from eventstore.backends.sql import greenlets
from eventstore.backends.sql.dialect import Dialect, dialect_of
from eventstore.backends.sql.failures import typed_failures
from eventstore.backends.sql.migrating import NEWEST, bring_up_to_date, is_current, migration_sql, version_of
from eventstore.backends.sql.models import Tables
from eventstore.errors import FactfoldError, UnsupportedBackend
from eventstore.shown_urls import shown_url
from eventstore.store import StoreVersion

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

# Writers wait this long for SQLite's one write lock; its own default is 5 s.
_LOCK_SECONDS: Final = 30
# 16 writers and as many again in bursts; SQLAlchemy's own default is 5 and 10.
_POOL_SIZE: Final = 16


class Database:
    """The connections of one store."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self.engine = engine
        self.tables = tables
        self.dialect: Dialect = dialect_of(engine, tables)
        greenlets.release_when_cut_off(engine)
        on_loop = engine.dialect.is_async
        self.sleep: Callable[[float], None] = greenlets.sleep if on_loop else time.sleep
        self._use: Callable[[], AbstractContextManager[None]] = greenlets.undisturbed if on_loop else nullcontext

    @cached_property
    def _single(self) -> Engine:
        # In autocommit mode one statement is one transaction and one round trip.
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @cached_property
    def _several(self) -> Engine:
        # Whatever the engine was made for: in autocommit mode locks would end with their statement.
        if self.dialect.single_writer:
            return self.engine
        return self.engine.execution_options(isolation_level="READ COMMITTED")

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """Lend a connection on which every statement is a transaction of its own."""
        with typed_failures(self.engine, self.dialect), self._use(), self._single.connect() as connection:
            self.dialect.settle(connection)
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection whose work is committed at the end, or rolled back."""
        with typed_failures(self.engine, self.dialect), self._use(), self._several.begin() as connection:
            yield connection

    @contextmanager
    def append(self) -> Iterator[Connection]:
        """Lend a connection for one append: a bare statement, or SQLite's write lock around several."""
        with self.statement() as connection:
            if not self.dialect.single_writer:
                yield connection
                return
            connection.exec_driver_sql("begin immediate")
            try:
                yield connection
            except BaseException:
                if not connection.invalidated:  # as an interrupt leaves it: closed, and so rolled back
                    connection.exec_driver_sql("rollback")
                raise
            connection.exec_driver_sql("commit")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a connection for several statements that are committed as one, and that have SQLite's write lock."""
        with self.append() if self.dialect.single_writer else self.transaction() as connection:
            yield connection

    @contextmanager
    def joined(self, connection: Connection | None) -> Iterator[Connection | None]:
        """Write in a caller's transaction; lend it where one writer locks out all others, and None elsewhere.

        A second transaction of our own would wait for the caller's there. The lock is taken before anything is read:
        what is read later is not overtaken, and a transaction that reads old rows already fails here.
        """
        if connection is None:
            yield None
            return
        with typed_failures(self.engine, self.dialect):
            if not connection.in_transaction():
                # As SQLAlchemy does by itself before a statement of its own, so that the caller's commit counts.
                connection.begin()
            self.dialect.lock(connection)
            yield connection if self.dialect.single_writer else None

    def scrub(self, tables: Sequence[Table]) -> list[str]:
        """Remove former rows of tables from the database's files, after the transaction that changed them.

        Returns what that does not reach, for people: it is no error.
        """
        try:
            with self.statement() as connection:
                return self.dialect.scrub(connection, tables)
        except (FactfoldError, DBAPIError) as error:
            names = ", ".join(table.name for table in tables)
            return [f"former rows of {names} in the database's files: removing them failed ({type(error).__name__})"]

    def take_turns(self) -> None:
        """Let other tasks of the loop work for a moment, where there is one; threads take turns by themselves."""
        if self.engine.dialect.is_async:
            self.sleep(0)

    def create_tables(self) -> None:
        """Create what is missing, or bring an older store up to date; StoreNewer, StoreNotPrepared."""
        with self.statement() as connection:
            if is_current(connection, self.tables):
                return
            self.dialect.before_tables(connection)
        with self.writing() as connection:
            self.dialect.guard_tables(connection, self.tables)
            bring_up_to_date(connection, self.tables)

    def version(self) -> StoreVersion:
        """Return which version the tables are of."""
        with self.statement() as connection:
            return StoreVersion(version_of(connection, self.tables), NEWEST)

    def migration_sql(self) -> str:
        """Return what `create_tables` would execute on a store that is not up to date."""
        with self.statement() as connection:
            return migration_sql(connection, self.tables)


def engine_for(database: str | URL) -> Engine:
    """Open an engine for a URL; psycopg where the URL names no driver. UnsupportedBackend, also for asyncio's."""
    with _usable():
        url = _with_driver(database, sqlite="pysqlite")
        engine = create_engine(url, **_options(url))
        listen(engine, "do_connect", _settle_threshold)
    if engine.dialect.is_async:
        raise _wrong_driver(url, "for asyncio only", "AsyncSqlEventStore")
    return engine


def url_of(database: str | URL) -> URL:
    """Return a URL without opening anything; UnsupportedBackend for what is none."""
    with _usable():
        return make_url(database)


def async_engine_for(database: str | URL) -> AsyncEngine:
    """Open an asyncio engine for a URL; psycopg or aiosqlite where it names no driver. UnsupportedBackend."""
    from sqlalchemy.ext.asyncio import create_async_engine

    with _usable():
        url = _with_driver(database, sqlite="aiosqlite")
        try:
            engine = create_async_engine(url, **_options(url))
        except InvalidRequestError as error:
            raise _wrong_driver(url, "not for asyncio", "SqlEventStore") from error
        listen(engine.sync_engine, "do_connect", _settle_threshold)
        return engine


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
    except (ArgumentError, ImportError) as error:
        # The text is not shown: it may hold a password.
        raise UnsupportedBackend(
            f"the database's URL cannot be used ({type(error).__name__})",
            remedy="write it as postgresql+psycopg://user:password@host/database or sqlite:///file.db",
        ) from None


def _wrong_driver(url: URL, problem: str, other: str) -> UnsupportedBackend:
    return UnsupportedBackend(
        f"the driver {url.drivername} is {problem}",
        remedy=f"name no driver, only {url.get_backend_name()}://…, or use {other}",
        place=shown_url(url),
    )


def _with_driver(database: str | URL, *, sqlite: str) -> URL:
    url = make_url(database)
    drivers = {"sqlite": f"sqlite+{sqlite}", "postgresql": "postgresql+psycopg"}
    return url.set(drivername=drivers.get(url.drivername, url.drivername))


def _options(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": _LOCK_SECONDS}}
    return {"pool_size": _POOL_SIZE, "max_overflow": _POOL_SIZE}
