"""One engine, its dialect, and the two ways to use a connection: single statements and transactions.

The engine may be the `sync_engine` of an asyncio one: what is done with it, in a greenlet, lets the loop go on.

A store that was restored into another cluster, whose transaction ids differ.

Readers take events whose `order_xid` lies below every open transaction. Where the old cluster had counted further, the
events are hidden until the new one has caught up. All of them are shifted by one number: their order, and what comes
after a checkpoint, stay what they were. Numbers below zero are as good as others. Events that were appended since would
lie below checkpoints, and be skipped: they are put behind all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from functools import cached_property
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from eventstore.backends.sql import greenlets
from eventstore.backends.sql.dialect import Dialect, typed_failures
from eventstore.backends.sql.models import NEWEST, Tables, bring_up_to_date, is_current, migration_sql, version_of
from eventstore.backends.sql.sqlite import SqliteDialect
from eventstore.backends.sql.ways import supported
from eventstore.errors import FactfoldError, StoreNotPrepared
from eventstore.shown_urls import shown_url
from eventstore.store import StoreVersion


def dialect_of(engine: sa.Engine, tables: Tables) -> Dialect:
    """Return the ways of an engine's database with a store's tables; UnsupportedBackend."""
    # Imported where chosen: psycopg is an extra, and the embedded store does without it.
    if supported(engine, "the event store").has_schemas:
        from eventstore.backends.sql.postgres import PostgresDialect  # needs the extra postgres

        return PostgresDialect(tables, user=engine.url.username)
    return SqliteDialect(tables, in_memory=engine.url.database in (None, "", ":memory:"))


class Database:
    """The connections of one store."""

    def __init__(self, engine: sa.Engine, tables: Tables) -> None:
        self.engine = engine
        self.tables = tables
        self.dialect: Dialect = dialect_of(engine, tables)
        self.lent: sa.Connection | None = None
        greenlets.release_when_cut_off(engine)
        on_loop = engine.dialect.is_async
        self.sleep: Callable[[float], None] = greenlets.sleep if on_loop else time.sleep
        self._use: Callable[[], AbstractContextManager[None]] = greenlets.undisturbed if on_loop else nullcontext

    def within(self, connection: sa.Connection) -> Database:
        """Return this database as a caller's transaction sees and writes it."""
        inside = copy(self)
        inside.lent = connection
        return inside

    @cached_property
    def _single(self) -> sa.Engine:
        # In autocommit mode one statement is one transaction and one round trip.
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @cached_property
    def _several(self) -> sa.Engine:
        # Whatever the engine was made for: in autocommit mode locks would end with their statement.
        if self.dialect.single_writer:
            return self.engine
        return self.engine.execution_options(isolation_level="READ COMMITTED")

    @contextmanager
    def statement(self, lent: sa.Connection | None = None) -> Iterator[sa.Connection]:
        """Lend a connection on which every statement is a transaction of its own, or the caller's."""
        if (callers := lent or self.lent) is not None:
            with typed_failures(self.engine, self.dialect):
                yield callers
            return
        with typed_failures(self.engine, self.dialect), self._use(), self._single.connect() as connection:
            self.dialect.settle(connection)
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Lend a connection whose work is committed at the end, or rolled back."""
        with typed_failures(self.engine, self.dialect), self._use(), self._several.begin() as connection:
            yield connection

    @contextmanager
    def append(self) -> Iterator[sa.Connection]:
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
    def writing(self) -> Iterator[sa.Connection]:
        """Lend a connection for several statements that are committed as one, and that have SQLite's write lock."""
        if self.lent is not None:
            lending = self.statement()
        else:
            lending = self.append() if self.dialect.single_writer else self.transaction()
        with lending as connection:
            yield connection

    @contextmanager
    def joined(self, connection: sa.Connection | None) -> Iterator[sa.Connection | None]:
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

    def scrub(self, tables: Sequence[sa.Table]) -> list[str]:
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


_SLOTS: Final = (
    "select slot_name from pg_replication_slots where database = current_database() and slot_type = 'logical'"
)
# As eventstore.backends.sql.source declares it: subscriptions to the store keep their places there.
_CHECKPOINTS: Final = sa.table("factfold_checkpoints", sa.column("topic"), sa.column("order_xid"))


def restored(database: Database) -> int:
    """Return how far the newest event is ahead of the next transaction id, 0 where it is behind."""
    if database.dialect.single_writer:
        return 0  # a position means the same in every file
    with database.statement() as connection:
        return _ahead(connection, database)


def renumber(database: Database, *, published: bool) -> int:
    """Shift every event, and the checkpoints of subscriptions with them; StoreNotPrepared."""
    events = database.tables.events
    if database.dialect.single_writer:
        with database.statement() as connection:
            connection.execute(sa.select(events.c.position).limit(1))  # StoreNotPrepared for a file that is no store
        return 0
    with database.transaction() as connection:
        connection.exec_driver_sql(f"lock table {_quoted(connection, database)} in share row exclusive mode")
        by = _ahead(connection, database)
        if by and not published:
            _check_slots(connection)
        if by:
            now = sa.cast(sa.cast(sa.func.pg_current_xact_id(), sa.Text), sa.BigInteger)
            shifted = sa.case((_came_with_the_first(database), events.c.order_xid - by), else_=now)
            connection.execute(sa.update(events).values(order_xid=shifted))
            places = database.tables.deleted_events
            connection.execute(sa.update(places).values(order_xid=places.c.order_xid - by))
            _shift_checkpoints(connection, database, by)
    return by


def _ahead(connection: sa.Connection, database: Database) -> int:
    # In one snapshot: an event that is visible has an id below the next one.
    following = sa.cast(sa.cast(sa.func.pg_snapshot_xmax(sa.func.pg_current_snapshot()), sa.Text), sa.BigInteger)
    newest = sa.func.max(database.tables.events.c.order_xid)
    return max(0, connection.execute(sa.select(newest - following + 1)).scalar() or 0)


def _came_with_the_first(database: Database) -> sa.ColumnElement[bool]:
    """Say whether a row was written by the transaction that wrote the first: a dump is loaded by one COPY a table."""
    events = database.tables.events
    first: sa.Select[Any] = sa.select(sa.literal_column("first.xmin")).select_from(events.alias("first"))
    writer = first.order_by(sa.literal_column("first.position")).limit(1).scalar_subquery()
    return sa.literal_column(f"{events.name}.xmin") == writer


def _quoted(connection: sa.Connection, database: Database) -> str:
    return connection.dialect.identifier_preparer.format_table(database.tables.events)


def _check_slots(connection: sa.Connection) -> None:
    slots = connection.exec_driver_sql(_SLOTS).scalars().all()
    if slots:
        raise StoreNotPrepared(
            f"replication slot {slots[0]!r} would publish this as updates, and an outbox connector stops at those",
            remedy='apply the connector with on_update="warn", then: factfold store renumber --published',
            place=shown_url(connection.engine.url),
            code="store-restored",
        )


def _shift_checkpoints(connection: sa.Connection, database: Database, by: int) -> None:
    """Shift those of this store's topics, and of their branches, where they lie in the store's database."""
    if not sa.inspect(connection).has_table(_CHECKPOINTS.name):
        return
    topics = connection.execute(sa.select(database.tables.categories.c.topic)).scalars().all()
    columns = _CHECKPOINTS.c
    ours = [columns.topic.in_(topics), *(columns.topic.startswith(f"{topic}.", autoescape=True) for topic in topics)]
    connection.execute(sa.update(_CHECKPOINTS).where(sa.or_(*ours)).values(order_xid=columns.order_xid - by))
