"""One engine, its dialect, and the two ways to use a connection: single statements and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Final

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError

from eventstore.backends.sql.dialect import Dialect, dialect_of
from eventstore.backends.sql.failures import typed_failures
from eventstore.backends.sql.migrating import NEWEST, bring_up_to_date, is_current, migration_sql, version_of
from eventstore.backends.sql.models import Tables
from eventstore.errors import UnsupportedBackend
from eventstore.store import StoreVersion

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

    @cached_property
    def _single(self) -> Engine:
        # In autocommit mode one statement is one transaction and one round trip.
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """Lend a connection on which every statement is a transaction of its own."""
        with typed_failures(self.engine, self.dialect), self._single.connect() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection whose work is committed at the end, or rolled back."""
        with typed_failures(self.engine, self.dialect), self.engine.begin() as connection:
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
                connection.exec_driver_sql("rollback")
                raise
            connection.exec_driver_sql("commit")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a connection for several statements that are committed as one, and that have SQLite's write lock."""
        with self.append() if self.dialect.single_writer else self.transaction() as connection:
            yield connection

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
    """Open an engine for a URL; psycopg where the URL names no driver. UnsupportedBackend."""
    try:
        return _engine(make_url(database))
    except (ArgumentError, ImportError) as error:
        # The text is not shown: it may hold a password.
        raise UnsupportedBackend(
            f"the database's URL cannot be used ({type(error).__name__})",
            remedy="write it as postgresql+psycopg://user:password@host/database or sqlite:///file.db",
        ) from None


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return create_engine(url, connect_args={"timeout": _LOCK_SECONDS})
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return create_engine(url, pool_size=_POOL_SIZE, max_overflow=_POOL_SIZE)
