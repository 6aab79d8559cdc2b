"""The store on asyncio and PostgreSQL: tasks at once, cancellations, connections that are cut."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

from eventstore import ANY, NO_STREAM, AsyncSqlEventStore
from eventstore.backends.sql import greenlets, writing
from eventstore.backends.sql.postgres import PostgresDialect
from tests.ledger import Payment

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


async def until_held(store):
    while not (await execute(store, "select is_called from held"))[0][0]:
        await asyncio.sleep(0.01)


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
    async with opened(database()) as store:
        await hold_inserts(store, 3600)
        task = asyncio.create_task(store.append("payment-1", [PAID], expected=NO_STREAM))
        await until_held(store)
        await asyncio.wait_for(cancelled(task), timeout=30)
        assert await at_work(store) == []
        assert store.engine.pool.checkedout() == 0
        assert await store.head("payment-1") is None
        await execute(store, "drop trigger hold on events")
        assert (await store.append("payment-1", [PAID], expected=NO_STREAM)).version == 0


async def test_an_append_that_is_under_way_comes_to_its_end_before_it_is_cancelled(database, monkeypatch):
    monkeypatch.setattr(greenlets, "_GRACE_SECONDS", 60)
    async with opened(database()) as store:
        await hold_inserts(store, 0.2)
        task = asyncio.create_task(store.append("payment-1", [PAID], expected=NO_STREAM))
        await until_held(store)
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
