"""One engine, its dialect, and the two ways to use a connection: single statements and transactions.

The engine may be the `sync_engine` of an asyncio one: what is done with it, in a greenlet, lets the loop go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from functools import cached_property

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import DBAPIError

from eventstore.backends.sql import greenlets
from eventstore.backends.sql.dialect import Dialect
from eventstore.backends.sql.migrating import NEWEST, bring_up_to_date, is_current, migration_sql, version_of
from eventstore.backends.sql.models import Tables
from eventstore.backends.sql.sqlite import SqliteDialect
from eventstore.backends.sql.transactions import typed_failures
from eventstore.backends.sql.ways import supported
from eventstore.errors import FactfoldError
from eventstore.store import StoreVersion


def dialect_of(engine: Engine, tables: Tables) -> Dialect:
    """Return the ways of an engine's database with a store's tables; UnsupportedBackend."""
    # Imported where chosen: psycopg is an extra, and the embedded store does without it.
    if supported(engine, "the event store").has_schemas:
        from eventstore.backends.sql.postgres import PostgresDialect  # needs the extra postgres

        return PostgresDialect(tables, user=engine.url.username)
    return SqliteDialect(tables, in_memory=engine.url.database in (None, "", ":memory:"))


class Database:
    """The connections of one store."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self.engine = engine
        self.tables = tables
        self.dialect: Dialect = dialect_of(engine, tables)
        self.lent: Connection | None = None
        greenlets.release_when_cut_off(engine)
        on_loop = engine.dialect.is_async
        self.sleep: Callable[[float], None] = greenlets.sleep if on_loop else time.sleep
        self._use: Callable[[], AbstractContextManager[None]] = greenlets.undisturbed if on_loop else nullcontext

    def within(self, connection: Connection) -> Database:
        """Return this database as a caller's transaction sees and writes it."""
        inside = copy(self)
        inside.lent = connection
        return inside

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
        """Lend a connection on which every statement is a transaction of its own, or the caller's."""
        if self.lent is not None:
            with typed_failures(self.engine, self.dialect):
                yield self.lent
            return
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
        if self.lent is not None:
            lending = self.statement()
        else:
            lending = self.append() if self.dialect.single_writer else self.transaction()
        with lending as connection:
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
        """Create what is missing, or bring an older store up to date; StoreNotPrepared."""
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
