"""SQLite's one write lock: the store waits for it, or says which transaction must begin otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from eventstore import ANY, AsyncDispatcher, AsyncSqlEventStore, Dispatcher, MasterKeys, SqlEventStore
from eventstore.errors import StoreUnavailable
from tests.unit.eventstore.counter import Counter
from tests.unit.eventstore.customer import Customer

KEYS = MasterKeys({"one": os.urandom(32)})
STALE, LOCKED = "read the event store's file before another one wrote", "another connection has the lock"


def engine_that_begins(url: str, how: str | None) -> sa.Engine:
    """Open a file as the driver does, or as SQLAlchemy's recipe for SQLite: the driver leaves it to an event."""
    engine = sa.create_engine(url, connect_args={"timeout": 0})
    return engine if how is None else beginning(engine, how)


def beginning(engine: sa.Engine, how: str) -> sa.Engine:
    @sa.event.listens_for(engine, "connect")
    def leave(driver: Any, record: Any) -> None:
        driver.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(how)

    return engine


@pytest.fixture
def other(tmp_path: Path) -> Iterator[SqlEventStore]:
    """Another process of the service."""
    with SqlEventStore(f"sqlite:///{tmp_path / 'service.db'}", keys=KEYS) as store:
        store.create_tables()
        store.append("counter-a", [Counter.Counted(by=1)], expected=ANY)
        yield store


@pytest.fixture(params=[None, "BEGIN", "BEGIN IMMEDIATE"])
def store(request: pytest.FixtureRequest, other: SqlEventStore) -> Iterator[SqlEventStore]:
    engine = engine_that_begins(str(other.engine.url), request.param)
    yield SqlEventStore(engine, keys=KEYS)
    engine.dispose()


@pytest.fixture
def deferred(other: SqlEventStore) -> Iterator[SqlEventStore]:
    """A service whose transactions begin by BEGIN, as SQLite has it by default."""
    engine = engine_that_begins(str(other.engine.url), "BEGIN")
    yield SqlEventStore(engine, keys=KEYS)
    engine.dispose()


WRITES: dict[str, Callable[[SqlEventStore], Any]] = {
    "append": lambda store: store.append("counter-a", [Counter.Counted(by=1)], expected=ANY),
    "append personal": lambda store: store.append("customer-7", [Customer.Registered(name="Ada")], expected=ANY),
    "register": lambda store: store.register(Customer),
    "declare": lambda store: store.declare_category("orders", partitions=3),
    "archive": lambda store: store.archive_stream("counter-a", expected=ANY),
    "unarchive": lambda store: store.unarchive_stream("counter-a"),
    "delete": lambda store: store.delete_stream("counter-a", expected=ANY),
    "erase": lambda store: store.erase("7"),
    "send": lambda store: Dispatcher(store).send("a", Counter.add, 1),
}  # fmt: skip


@pytest.mark.parametrize("how", [None, "BEGIN", "BEGIN IMMEDIATE"])
def test_an_engine_may_begin_its_transactions_by_an_event(tmp_path: Path, how: str | None) -> None:
    engine = engine_that_begins(f"sqlite:///{tmp_path / 'new.db'}", how)
    store = SqlEventStore(engine, keys=KEYS)
    store.create_tables()
    for write in WRITES.values():
        if write is not WRITES["send"]:  # the stream is deleted by then
            write(store)
    assert store.head("customer-7") == 0
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:  # noqa: PT012
        store.append("customer-8", [Customer.Registered(name="Bea")], expected=ANY, connection=connection)
        raise ZeroDivisionError
    assert store.head("customer-8") is None
    engine.dispose()


@pytest.mark.parametrize("what", WRITES)
def test_a_write_under_the_lock_of_another_connection_is_unavailable(store, other, what):
    with other.engine.connect() as holder:
        holder.exec_driver_sql("begin immediate")
        with pytest.raises(StoreUnavailable, match=LOCKED) as caught:
            WRITES[what](store)
    assert "BEGIN IMMEDIATE" in caught.value.remedy
    WRITES[what](store)


JOINED: dict[str, Callable[[SqlEventStore, sa.Connection], Any]] = {
    "append": lambda store, tx: store.append("counter-a", [Counter.Counted(by=1)], expected=ANY, connection=tx),
    "append to a new category": lambda store, tx: store.append(
        "customer-7", [Customer.Registered(name="Ada")], expected=ANY, connection=tx
    ),
    "append within": lambda store, tx: store.within(tx).append("counter-a", [Counter.Counted(by=1)], expected=ANY),
    "send": lambda store, tx: Dispatcher(store).within(tx).send("a", Counter.add, 1),
    "send a personal command": lambda store, tx: Dispatcher(store).within(tx).send("7", Customer.register, "Ada"),
}


@pytest.mark.parametrize("what", JOINED)
def test_a_transaction_that_read_before_another_one_wrote_is_told_to_begin_immediate(deferred, other, what):
    with deferred.engine.connect() as connection:
        connection.exec_driver_sql("select * from events").all()
        other.append("counter-b", [Counter.Counted(by=1)], expected=ANY)
        with pytest.raises(StoreUnavailable, match=STALE) as caught:
            JOINED[what](deferred, connection)
    assert "BEGIN IMMEDIATE" in caught.value.remedy
    with deferred.engine.begin() as connection:
        JOINED[what](deferred, connection)


@pytest.mark.parametrize("what", JOINED)
def test_a_transaction_that_read_while_another_one_writes_is_told_to_begin_immediate(deferred, other, what):
    with other.engine.connect() as holder, deferred.engine.connect() as connection:
        holder.exec_driver_sql("begin immediate")
        connection.exec_driver_sql("select * from events").all()
        with pytest.raises(StoreUnavailable, match=LOCKED):
            JOINED[what](deferred, connection)


def test_a_transaction_that_has_only_begun_appends_after_whatever_was_written_since(deferred, other):
    with deferred.engine.begin() as connection:
        connection.begin_nested()  # a savepoint reads nothing
        other.append("counter-a", [Counter.Counted(by=1)], expected=ANY)
        assert deferred.append("counter-a", [Counter.Counted(by=1)], expected=ANY, connection=connection).version == 2


async def test_a_transaction_on_a_loop_that_read_before_another_one_wrote_is_told_too(other: SqlEventStore) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{other.engine.url.database}", connect_args={"timeout": 0})
    beginning(engine.sync_engine, "BEGIN")
    store = AsyncSqlEventStore(engine)
    await store.append("counter-a", [Counter.Counted(by=1)], expected=ANY)
    async with engine.connect() as connection:
        await connection.exec_driver_sql("select * from events")
        other.append("counter-b", [Counter.Counted(by=1)], expected=ANY)
        with pytest.raises(StoreUnavailable, match=STALE):
            await AsyncDispatcher(store).within(connection).send("a", Counter.add, 1)
    await engine.dispose()
