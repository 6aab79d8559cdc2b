"""The store on asyncio and PostgreSQL: tasks at once, cancellations, connections that are cut."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import pytest
from sqlalchemy import make_url

from eventstore import ANY, NO_STREAM, STREAM_EXISTS, Aggregate, AsyncSqlEventStore, Dispatcher, SqlEventStore, event
from eventstore.backends.sql import greenlets, writing
from eventstore.backends.sql.postgres import PostgresDialect
from eventstore.errors import StoreNotPrepared, StoreUnavailable
from eventstore.restarts import passes
from eventstore.snapshots import Snapshots
from tests.ledger import Payment
from tests.orders import PLACED, Order
from tests.rows import each_row

PAID = Payment.Received(amount=1)
CUT = "select pg_terminate_backend(pg_backend_pid())"


@asynccontextmanager
async def opened(url):
    async with AsyncSqlEventStore(url) as store:
        await store.create_tables()
        await store.register(Payment)
        yield store


async def execute(store, statement):
    async with store.engine.begin() as connection:
        found = await connection.exec_driver_sql(statement)
        return found.all() if found.returns_rows else None


async def hold_inserts(store, seconds):
    """Let each insert take so long; the database notes how many have begun."""
    await execute(store, "create sequence held")
    await execute(
        store,
        "create function hold() returns trigger language plpgsql as $$ begin "
        f"perform nextval('held'); perform pg_sleep({seconds}); return new; end $$",
    )
    await execute(store, "create trigger hold before insert on events for each row execute function hold()")


@asynccontextmanager
async def appending(url, *, seconds):
    """A store, and an append to it whose insert has begun and takes so long."""
    async with opened(url) as store:
        await hold_inserts(store, seconds)
        task = asyncio.create_task(store.append("payment-1", [PAID], expected=NO_STREAM))
        while not (await execute(store, "select is_called from held"))[0][0]:
            await asyncio.sleep(0.01)
        yield store, task


async def at_work(store):
    """Sessions that are at a statement, or in a transaction, beside the one that asks."""
    return await execute(
        store,
        "select query from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
        "and backend_type = 'client backend' and state <> 'idle'",
    )


async def cancelled(task):
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_an_append_that_hangs_is_cut_off_when_it_is_cancelled_and_leaves_nothing(database, monkeypatch):
    monkeypatch.setattr(greenlets, "_GRACE_SECONDS", 0.05)
    async with appending(database(), seconds=3600) as (store, task):
        await asyncio.wait_for(cancelled(task), timeout=30)
        assert await at_work(store) == []
        assert store.engine.pool.checkedout() == 0
        assert await store.head("payment-1") is None
        await execute(store, "drop trigger hold on events")
        assert (await store.append("payment-1", [PAID], expected=NO_STREAM)).version == 0


async def test_an_append_that_is_under_way_comes_to_its_end_before_it_is_cancelled(database, monkeypatch):
    monkeypatch.setattr(greenlets, "_GRACE_SECONDS", 60)
    async with appending(database(), seconds=0.2) as (store, task):
        await cancelled(task)
        assert task.cancelled()
        assert await store.head("payment-1") == 0
        assert await at_work(store) == []
        assert store.engine.pool.checkedout() == 0


async def test_whenever_an_append_is_cancelled_it_took_place_or_did_not(database):
    async with opened(database()) as store:
        for after in (n / 5000 for n in range(0, 30, 2)):
            before = await count(store)
            task = asyncio.create_task(store.append("payment-1", [PAID, PAID], expected=ANY))
            await asyncio.wait({task}, timeout=after)
            await cancelled(task)
            assert await count(store) - before in ((0, 2) if task.cancelled() else (2,))
            assert (await at_work(store), store.engine.pool.checkedout()) == ([], 0)


async def count(store):
    return len([event async for event in store.read_all()])


async def test_while_lost_connections_are_waited_for_other_tasks_work(database, monkeypatch):
    monkeypatch.setattr(writing, "_LOST_PAUSE_SECONDS", 0.5)
    real, cuts = PostgresDialect.append, [CUT]

    def append(self, connection, batch):
        inserted = real(self, connection, batch)
        if cuts:
            connection.exec_driver_sql(cuts.pop())  # the answer is on its way
        return inserted

    monkeypatch.setattr(PostgresDialect, "append", append)
    async with opened(database()) as store:
        task, turns = asyncio.create_task(store.append("payment-1", [PAID], expected=ANY)), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0.01)
        assert turns > 20


# ---- A PostgreSQL that takes no writes, as after a failover, and a user without a right: typed, and outwaited or named


class Parcel(Aggregate):
    @event
    class Sent:
        to: str


WRITES = {
    "append": lambda store: store.append(f"order-{uuid4()}", [PLACED], expected=NO_STREAM),
    "send": lambda store: Dispatcher(store).send(str(uuid4()), Order.place, sku="tea"),
    "erase": lambda store: store.erase("7"),
    "archive": lambda store: store.archive_stream("order-1", expected=STREAM_EXISTS),
    "unarchive": lambda store: store.unarchive_stream("order-1"),
    "declare": lambda store: store.declare_category(f"c{uuid4().hex}", partitions=1),
    "register": lambda store: store.register(Parcel),
    "snapshot": lambda store: Dispatcher(store, snapshots=Snapshots(store)).take_snapshot(Order, "1"),
    "delete": lambda store: store.delete_stream("order-1", expected=ANY),
}


@pytest.fixture
def url(database):
    url = database()
    with SqlEventStore(url) as store:
        store.create_tables()
        store.append("order-1", [PLACED], expected=NO_STREAM)
    return url


@pytest.fixture
def owner(url):
    """A function that runs a statement as the owner of the tables, who is a superuser."""
    with SqlEventStore(url) as store:

        def run(statement):
            with store.engine.begin() as connection:
                connection.exec_driver_sql("set transaction read write")
                connection.exec_driver_sql(statement)

        yield run


def make_read_only(owner, url, *, on):
    owner(f'alter database "{make_url(url).database}" set default_transaction_read_only = {"on" if on else "off"}')


@each_row("name", WRITES)
def test_a_read_only_server_refuses_for_now(url, owner, monkeypatch, name):
    monkeypatch.setattr(writing, "_LOST_SECONDS", 0.3)
    make_read_only(owner, url, on=True)
    with SqlEventStore(url) as store:
        with pytest.raises(StoreUnavailable, match="is read-only") as refused:
            WRITES[name](store)
        assert passes(refused.value)  # runners start again
        make_read_only(owner, url, on=False)
        if name not in ("archive", "delete"):
            WRITES[name](store)  # on a new connection, which a failover needs


def test_an_append_outwaits_a_failover(url, owner):
    with SqlEventStore(url) as store:
        store.register(Order)
        make_read_only(owner, url, on=True)
        store.engine.dispose()  # a session that is open stays as it is
        back = threading.Timer(0.5, lambda: make_read_only(owner, url, on=False))
        back.start()
        store.append("order-2", [PLACED], expected=NO_STREAM)
        back.join()
        assert store.head("order-2") == 0


@pytest.fixture
def in_schema(url):
    with SqlEventStore(url, schema="shop") as store:
        store.create_tables()
        store.append("order-1", [PLACED], expected=NO_STREAM)


@each_row("name", WRITES)
def test_a_missing_right_is_named_and_its_remedy_gives_it(in_schema, url, owner, name):
    role = f"r{uuid4().hex[:12]}"
    owner(f"create role {role} login password 'secret'")
    with SqlEventStore(make_url(url).set(username=role, password="secret"), schema="shop") as store:
        refused, rights = refusal_of(store, name), []
        while refused is not None:
            assert "a right is missing: permission denied for " in refused.message
            assert not passes(refused)  # waiting does not help
            assert refused.remedy not in rights, "the remedy did not help"
            rights.append(refused.remedy)
            owner(refused.remedy.partition(": ")[2])
            refused = refusal_of(store, name)
        assert rights[0] == f'let the owner run: GRANT USAGE ON SCHEMA "shop" TO "{role}"'
        assert rights[1:]


def refusal_of(store, name):
    try:
        WRITES[name](store)
    except StoreNotPrepared as refused:
        return refused
    return None
