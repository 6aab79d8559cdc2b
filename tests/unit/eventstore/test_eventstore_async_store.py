"""What the store on asyncio adds to the suite: tasks, turns of the loop, cancellations, transactions of the caller."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import aiosqlite
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import create_async_engine

from eventstore import ANY, NO_STREAM, AsyncSqlEventStore, SqlEventStore
from eventstore.backends.sql import greenlets
from eventstore.backends.sql.greenlets import TURN, release_when_cut_off
from eventstore.backends.sql.reading import SqlStreams
from eventstore.backends.sql.store import StoreOptions
from eventstore.errors import UnsupportedBackend
from eventstore.personal.sealing import DataKey
from tests.errors import raises
from tests.ledger import METADATA, Payment
from tests.unit.eventstore.customer import Customer
from tests.vault import Vault

PAID = Payment.Received(amount=1)


@pytest.fixture
def url(tmp_path):
    """A file with a store and a ledger."""
    path = f"{tmp_path}/service.db"
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        METADATA.create_all(store.engine)
    return f"sqlite+aiosqlite:///{path}"


def in_use(store):
    """Connections that nobody gave back."""
    return store.engine.pool.checkedout()


async def test_a_connection_that_is_not_open_is_refused_and_nothing_is_stored(url):
    async with AsyncSqlEventStore(url) as store:
        with pytest.raises(InvalidRequestError, match="has not been started"):
            await store.append("payment-1", [PAID], expected=ANY, connection=store.engine.connect())
        assert await store.head("payment-1") is None


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_an_append_that_is_cancelled_took_place_or_did_not_and_keeps_no_connection(url, turns):
    async with AsyncSqlEventStore(url) as store:
        await store.append("payment-1", [PAID], expected=NO_STREAM)
        task = asyncio.create_task(store.append("payment-1", [PAID, PAID], expected=0))
        for _ in range(turns):
            await asyncio.sleep(0.0001)
        task.cancel()
        (answer,) = await asyncio.gather(task, return_exceptions=True)
        took_place = await store.head("payment-1")
        assert took_place in ((2,) if not isinstance(answer, BaseException) else (0, 2))
        assert isinstance(answer, asyncio.CancelledError) or took_place == 2
        assert in_use(store) == 0
        assert (await store.append("payment-1", [PAID], expected=took_place)).version == took_place + 1


async def test_a_cancelled_append_gives_its_connection_back_as_it_was(url, monkeypatch):
    """Cutting it off would cost the connection: under a load balancer's timeouts that is a storm of them."""
    monkeypatch.setattr(greenlets, "_GRACE_SECONDS", 60)
    async with AsyncSqlEventStore(url) as store:
        await store.append("payment-1", [PAID], expected=NO_STREAM)
        before = await the_connection_of(store)
        for after in (0.001, 0.05):
            await cancelled(store.append("payment-1", [PAID], expected=ANY), after=after)
            hold_in_a_statement(store, monkeypatch, steps=1_000_000)
        assert await the_connection_of(store) is before


async def test_an_append_that_hangs_is_cut_off_when_it_is_cancelled_and_leaves_nothing(url, monkeypatch):
    monkeypatch.setattr(greenlets, "_GRACE_SECONDS", 0.01)
    async with AsyncSqlEventStore(url) as store:
        await store.register(Payment)
        hold_in_a_statement(store, monkeypatch, steps=3_000_000)
        await cancelled(store.append("payment-1", [PAID], expected=NO_STREAM), after=0.1)
        assert await store.head("payment-1") is None
        assert in_use(store) == 0


async def cancelled(work, *, after):
    """Cancel it after so many seconds; what it raised otherwise is raised."""
    task = asyncio.create_task(work)
    await asyncio.wait({task}, timeout=after)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def the_connection_of(store):
    """The driver's own, of a store that is not used at the moment."""
    async with store.engine.connect() as connection:
        return (await connection.get_raw_connection()).driver_connection


def hold_in_a_statement(store, monkeypatch, *, steps):
    """Let an append count so far in its transaction, a million in some 0.15 s, when its rows are inserted."""
    dialect = store.sync_store._database.dialect
    real = dialect.append

    def append(connection, batch):
        inserted = real(connection, batch)
        connection.exec_driver_sql(
            f"with recursive c(n) as (select 1 union all select n + 1 from c limit {steps}) select max(n) from c"
        )
        return inserted

    monkeypatch.setattr(dialect, "append", append)


async def turns_while_a_page_is_decoded(store, monkeypatch):
    """How often another task had its turn between the first and the last event of a page, which needs no I/O."""
    turns, seen, real = 0, [], SqlStreams._recorded

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def recorded(streams, row):
        seen.append(turns)
        return real(streams, row)

    monkeypatch.setattr(SqlStreams, "_recorded", recorded)
    counting = asyncio.create_task(count())
    assert len(await store.run_sync(lambda it: list(it.read_stream("payment-1", limit=1000)))) == 1000
    counting.cancel()
    return seen[-1] - seen[1]  # before the first, its schema is looked up


async def test_a_long_read_lets_other_tasks_work(url, monkeypatch):
    async with AsyncSqlEventStore(url) as store:
        await store.append("payment-1", [PAID] * 1000, expected=NO_STREAM)
        assert await turns_while_a_page_is_decoded(store, monkeypatch) >= 1000 // TURN - 1


async def test_a_read_that_is_left_early_keeps_no_connection(url):
    async with AsyncSqlEventStore(url) as store:
        await store.append("payment-1", [PAID] * 300, expected=NO_STREAM)
        async for event in store.read_all():
            assert event.version == 0
            break
        assert in_use(store) == 0


async def test_an_engine_of_the_caller_stays_open(url):
    engine = create_async_engine(url)
    async with AsyncSqlEventStore(engine) as store:
        await store.append("payment-1", [PAID], expected=ANY)
    assert engine.pool.checkedin() == 1
    await engine.dispose()


def test_a_driver_of_the_other_world_is_refused():
    with raises(UnsupportedBackend, match=r"sqlite\+pysqlite is not for asyncio", remedy="use SqlEventStore"):
        AsyncSqlEventStore("sqlite+pysqlite://")
    with raises(UnsupportedBackend, match=r"sqlite\+aiosqlite is for asyncio only", remedy="use AsyncSqlEventStore"):
        SqlEventStore("sqlite+aiosqlite://")


def test_a_url_without_a_driver_gets_the_one_for_asyncio():
    assert AsyncSqlEventStore("sqlite:///shop.db").engine.driver == "aiosqlite"
    assert AsyncSqlEventStore("postgresql://db/shop").engine.driver == "psycopg"


def public(kind):
    own = [one for base in reversed(kind.__mro__) if base.__module__.startswith("eventstore.") for one in vars(base)]
    return {name: getattr(kind, name) for name in own if not name.startswith("_") and callable(getattr(kind, name))}


def parameters(method):
    return [one.replace(annotation="") for one in inspect.signature(method).parameters.values()]


# What operators do, with a store that nobody else waits for; services reach it by `run_sync`.
OPERATORS = {"ahead_of_cluster", "export_file", "import_file", "migration_sql", "read_selected", "recorded_ids",
             "renumber", "sources_of", "topics_of", "version"}  # fmt: skip


def test_every_method_has_its_twin_with_the_same_parameters():
    theirs, ours = public(SqlEventStore), public(AsyncSqlEventStore)
    assert ours.keys() - theirs.keys() == {"run_sync"}
    assert theirs.keys() - ours.keys() == OPERATORS
    twins = theirs.keys() - OPERATORS
    assert {name: parameters(theirs[name]) for name in twins} == {name: parameters(ours[name]) for name in twins}
    assert inspect.signature(SqlEventStore).parameters.keys() - {"database"} == StoreOptions.__optional_keys__


class SlowRegistry:
    """A registry whose answer takes until somebody else had a turn on the loop."""

    address = "http://registry"

    def __init__(self):
        self.may_answer = threading.Event()

    def register(self, schemas):
        assert self.may_answer.wait(30), "the loop stood still while the registry was asked"
        return [replace(schema, id=number, registry=self.address) for number, schema in enumerate(schemas, 1)]


async def test_a_registry_is_asked_without_holding_up_the_loop(url):
    registry = SlowRegistry()
    async with AsyncSqlEventStore(url, registry=registry) as store:
        await store.create_tables()
        appending = asyncio.create_task(store.append("payment-1", [PAID], expected=NO_STREAM))
        await asyncio.sleep(0)
        registry.may_answer.set()
        assert (await appending).schema_ids == (1,)


T = TypeVar("T")


class Remote(Vault):
    """Answers once the loop has had a turn, as a service does after a while; a loop that waits for it never has one."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.turned = threading.Event(), threading.Event()
        self.blocked: list[str] = []

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        return self._after_a_turn("keys_for", lambda: super(Remote, self).keys_for(subjects))

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        return self._after_a_turn("keys", lambda: super(Remote, self).keys(ids))

    def erase(self, subject: str) -> int:
        return self._after_a_turn("erase", lambda: super(Remote, self).erase(subject))

    def _after_a_turn(self, call: str, answer: Callable[[], T]) -> T:
        self.turned.clear()
        self.asked.set()
        if not self.turned.wait(2):
            self.blocked.append(call)
        return answer()


async def turns(keys: Remote) -> None:
    while True:
        await asyncio.sleep(0.001)
        if keys.asked.is_set():
            keys.turned.set()


@pytest.mark.parametrize("own_transaction", [True, False])
async def test_the_loop_goes_on_while_keys_are_asked_for(tmp_path, own_transaction):
    keys = Remote()
    async with AsyncSqlEventStore(f"sqlite+aiosqlite:///{tmp_path}/people.db", keys=keys) as store:
        await store.create_tables()
        await store.register(Customer)
        turning = asyncio.create_task(turns(keys))
        if own_transaction:
            await store.append("customer-1", [Customer.Registered(name="Ada")], expected=ANY)
        else:
            async with store.engine.begin() as connection:
                await store.append("customer-1", [Customer.Registered(name="Ada")], expected=ANY, connection=connection)
        assert [recorded.data["name"] async for recorded in store.read_all()] == ["Ada"]
        assert list((await store.erase("1")).streams) == ["customer-1"]
        assert [recorded.data["name"] async for recorded in store.read_all()] == ["(erased)"]
        turning.cancel()
    assert keys.blocked == []


# ---- A statement on aiosqlite that is cancelled, wherever it is, keeps no lock: not even while its exception is kept


STATEMENTS = {
    "a query": "select n from numbers",
    "a change": "insert into numbers values (4)",
    "a change that returns rows": "insert into numbers values (4), (5) returning n",
}


@pytest.fixture
def writer(tmp_path):
    """A connection to a database of three numbers, which waits for nobody."""
    connection = sqlite3.connect(tmp_path / "numbers.db", timeout=0)
    with connection:
        connection.execute("create table numbers (n)")
        connection.execute("insert into numbers values (1), (2), (3)")
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def _quiet():
    """SQLAlchemy's pool tells of every connection that is cut off, with its stack."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


async def cut_off(engine, sql, monkeypatch, *, at):
    """Run a statement in a transaction, cancelled at these of its calls of the driver; return the cancellation."""
    calls, real = 0, aiosqlite.Connection._execute

    async def execute(connection, function, *args, **kwargs):
        nonlocal calls
        calls += 1
        if calls in at:
            asyncio.current_task().cancel()
        return await real(connection, function, *args, **kwargs)

    async def work():
        try:
            async with engine.begin() as tx:
                await tx.exec_driver_sql(sql)
        except asyncio.CancelledError as ended:
            return ended

    with monkeypatch.context() as patched:
        patched.setattr(aiosqlite.Connection, "_execute", execute)
        return await asyncio.create_task(work())


async def lock_left(tmp_path, writer, monkeypatch, *, sql, times):
    """Cancel a statement at each call in turn, so many times in a row; return the first after which a lock is kept."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/numbers.db", poolclass=sa.NullPool)
    release_when_cut_off(engine.sync_engine)
    async with engine.connect():  # the first connection of an engine makes calls of its own
        pass
    for first in itertools.count(1):
        ended = await cut_off(engine, sql, monkeypatch, at=range(first, first + times))
        if ended is None:
            assert first > 5, "the statement was never cut off"
            break
        await asyncio.sleep(0.02)  # the thread of the connection ends what it has been told
        try:
            with writer:
                writer.execute("insert into numbers values (0)")
        except sqlite3.OperationalError:
            return first
    return None


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("sql", STATEMENTS.values(), ids=STATEMENTS)
async def test_a_statement_that_is_cut_off_keeps_no_lock(tmp_path, writer, monkeypatch, sql, times):
    assert await lock_left(tmp_path, writer, monkeypatch, sql=sql, times=times) is None
