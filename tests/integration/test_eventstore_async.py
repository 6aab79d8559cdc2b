"""The store on asyncio and PostgreSQL: tasks at once, cancellations, connections that are cut."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager, suppress

import pytest
import sqlalchemy as sa

from eventstore import ANY, NO_STREAM, AsyncDispatcher, AsyncSqlEventStore, NewEvent
from eventstore.backends.sql import appending, greenlets
from eventstore.backends.sql.postgres import PostgresDialect
from eventstore.backends.sql.reading import Reader
from eventstore.errors import OutcomeUnknown, StoreUnavailable
from tests.ledger import Payment
from tests.unit.eventstore.counter import Counter

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


async def test_tasks_that_append_to_one_stream_at_once_leave_no_gap(database):
    async with opened(database()) as store:
        await asyncio.gather(*(store.append("payment-1", [PAID, PAID], expected=ANY) for _ in range(100)))
        assert [event.version async for event in store.read_stream("payment-1")] == list(range(200))
        assert [event.version async for event in store.read_all()] == list(range(200))


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


@pytest.mark.parametrize("after", [n / 5000 for n in range(0, 30, 2)])
async def test_whenever_an_append_is_cancelled_it_took_place_or_did_not(database_of_payments, after):
    async with opened(database_of_payments) as store:
        before = await count(store)
        task = asyncio.create_task(store.append("payment-1", [PAID, PAID], expected=ANY))
        await asyncio.wait({task}, timeout=after)
        await cancelled(task)
        assert await count(store) - before in ((0, 2) if task.cancelled() else (2,))
        assert (await at_work(store), store.engine.pool.checkedout()) == ([], 0)


async def count(store):
    return len([event async for event in store.read_all()])


@pytest.fixture(scope="module")
def database_of_payments(postgres):
    """One database for cancellations at many moments."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(postgres.info.postgres.url(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"create database {name}")
    engine.dispose()
    return postgres.info.postgres.url(name)


@pytest.fixture
def cut_after_commit(monkeypatch):
    """A function that cuts so many appends when they are committed: the answer is on its way."""
    real, left = PostgresDialect.append, []

    def append(self, connection, batch):
        inserted = real(self, connection, batch)
        if left:
            left.pop()
            connection.exec_driver_sql(CUT)
        return inserted

    monkeypatch.setattr(PostgresDialect, "append", append)
    return lambda times: left.extend([None] * times)


@pytest.mark.parametrize("expected", [ANY, NO_STREAM])
async def test_an_append_whose_answer_was_lost_is_found_by_its_ids(database, cut_after_commit, expected):
    async with opened(database()) as store:
        cut_after_commit(1)
        result = await store.append("payment-1", [PAID, PAID], expected=expected)
        assert [event.id async for event in store.read_stream("payment-1")] == list(result.ids)


async def test_a_database_that_stays_away_leaves_the_outcome_open(database, cut_after_commit, monkeypatch):
    monkeypatch.setattr(appending, "_LOST_SECONDS", 0.5)
    async with opened(database()) as store:
        with monkeypatch.context() as away:
            cut_after_commit(1)
            away.setattr(Reader, "earlier", refuse)
            with pytest.raises(OutcomeUnknown, match="it is unknown whether") as unknown:
                await store.append("payment-1", [PAID], expected=NO_STREAM)
        (event_id,) = unknown.value.ids
        again = await store.append("payment-1", [NewEvent(PAID, id=event_id)], expected=NO_STREAM)
        assert (again.ids, again.version) == ((event_id,), 0)


def refuse(reader, batch):
    with reader._connect() as connection:
        connection.exec_driver_sql(CUT)
    raise AssertionError("the connection was to be cut")


async def test_while_lost_connections_are_waited_for_other_tasks_work(database, cut_after_commit, monkeypatch):
    monkeypatch.setattr(appending, "_LOST_PAUSE_SECONDS", 0.5)
    async with opened(database()) as store:
        cut_after_commit(1)
        task, turns = asyncio.create_task(store.append("payment-1", [PAID], expected=ANY)), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0.01)
        assert turns > 20


async def test_a_database_that_is_not_there_is_a_typed_error():
    async with AsyncSqlEventStore("postgresql://nobody@127.0.0.1:1/nothing") as store:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await store.head("payment-1")


async def test_the_fence_names_who_holds_it(database):
    async with opened(database()) as store, store.engine.connect() as connection:
        await connection.exec_driver_sql("select pg_current_xact_id()")
        await store.append("payment-1", [PAID], expected=ANY)
        status = await store.fence()
        assert (status.waiting, status.holder is None) == (1, False)
        assert [event async for event in store.read_all()] == []


async def test_commands_and_rows_of_a_transaction_commit_together(database):
    async with opened(database()) as store:
        await execute(store, "create table ledger (amount int)")
        async with store.engine.begin() as connection:
            counters = AsyncDispatcher(store).within(connection)
            await connection.exec_driver_sql("insert into ledger values (1)")
            await counters.send("a", Counter.add, 1)
            assert (await counters.load(Counter, "a")).count == 1
            assert await store.head("counter-a") is None
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with store.engine.begin() as connection:
                await AsyncDispatcher(store).within(connection).send("a", Counter.add, 2)
                raise ZeroDivisionError
        assert (await AsyncDispatcher(store).load(Counter, "a")).count == 1
