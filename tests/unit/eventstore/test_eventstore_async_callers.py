"""Delivery to coroutine handlers: the guarantees of the other kind, and what only a loop has."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from eventstore import (
    ANY,
    Accepted,
    AsyncDispatcher,
    AsyncSqlEventStore,
    AsyncSubscriber,
    Dispatcher,
    Metadata,
    Refusal,
    SqlEventStore,
    Subscriber,
    subscription,
)
from eventstore.aggregates.dispatcher import logged, required
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import DeclarationError, Refused, SubscriptionError
from tests.errors import raises
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore import handlers
from tests.unit.eventstore.async_handlers import booking, deliver
from tests.unit.eventstore.counter import Counter, noting
from tests.unit.eventstore.memory_source import MemorySource, arrivals
from tests.waiting import wait_until


@pytest.fixture
def looped(engine):
    """A function that gives the ledger's database to a loop; connections are closed when they are given back."""
    url = engine.url.set(drivername="sqlite+aiosqlite")
    return lambda **options: create_async_engine(url, poolclass=sa.NullPool, **options)


async def test_an_event_is_handled_once_however_often_it_arrives(engine, looped):
    batch = arrivals(1, 2, 3)
    report = await deliver(booking(), source := MemorySource(batch, batch[:2]), looped())
    assert (report.handled, report.duplicates, amounts(engine)) == (3, 2, [1, 2, 3])
    assert source.acknowledged == ["1", "2", "3", "1", "2"]
    assert source.closed


async def test_a_handler_that_hangs_is_cancelled_and_nothing_of_it_is_committed(engine, looped):
    ended = []

    async def hang(event: Payment.Received, tx: AsyncConnection) -> None:
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        try:
            await asyncio.sleep(3600 if event.amount == 2 else 0)
        except asyncio.CancelledError:
            ended.append(event.amount)
            raise

    batch = arrivals(1, 2, 3)
    source = MemorySource(batch)
    with raises(SubscriptionError, code="handler-hung", match=r"hang did not return within 0\.1 s") as hung:
        await deliver(subscription("payments", group="books", timeout=0.1)(hang), source, looped())
    assert (hung.value.place, ended, source.acknowledged, source.closed) == ("2", [2], [], True)
    assert (await deliver(booking(), MemorySource(batch), looped())).handled == 3
    assert amounts(engine) == [1, 2, 3]


async def test_a_handler_that_will_not_be_cancelled_loses_its_transaction_all_the_same(engine, looped):
    release = asyncio.Event()

    async def hang(event: Payment.Received, tx: AsyncConnection) -> None:
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    batch = arrivals(1, 2, 3)
    with raises(SubscriptionError, code="handler-hung"):
        await deliver(subscription("payments", group="books", timeout=0.1)(hang), MemorySource(batch), looped())
    # The lock of the transaction that was cut off is gone at once, and its records arrive again.
    assert (await deliver(booking(), MemorySource(batch), looped())).handled == 3
    release.set()
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
    assert amounts(engine) == [1, 2, 3]


async def test_what_a_handler_has_cancelled_itself_is_a_failure_of_its_own(engine, looped):
    async def book(event: Payment.Received, tx: AsyncConnection) -> None:
        await tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == 2:
            task = asyncio.create_task(asyncio.sleep(3600))
            task.cancel()
            await task

    source = MemorySource(arrivals(1, 2, 3))
    report = await deliver(subscription("payments", group="books", backoff=0, attempts=2)(book), source, looped())
    assert (report.handled, report.dead, amounts(engine)) == (2, 1, [1, 3])
    assert "something that was cancelled" in str(source.dead[0].error)


async def test_a_stop_ends_the_batch_after_the_call_at_hand_and_the_rest_arrives_again(engine, looped):
    stop, calls, batch = asyncio.Event(), [], arrivals(*range(1200))
    source = MemorySource(batch)
    asyncio.get_running_loop().call_later(0.3, stop.set)
    async with AsyncSubscriber(booking(waits=0.05, calls=calls), source, engine=looped()) as subscriber:
        done = (await subscriber.run(stop=stop)).handled
    assert 0 < done < 100
    assert amounts(engine) == calls == list(range(done))
    assert source.acknowledged == [str(amount) for amount in calls]
    assert (await deliver(booking(), MemorySource(batch[: done + 3]), looped())).handled == 3


async def test_a_run_that_is_cancelled_cancels_the_call_at_hand_and_its_batch_arrives_again(engine, looped):
    calls, batch = [], arrivals(1, 2, 3)
    source = MemorySource(batch)
    async with AsyncSubscriber(booking(waits=3600, calls=calls), source, engine=looped()) as subscriber:
        running = asyncio.create_task(subscriber.run())
        await until(lambda: calls == [1])
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (amounts(engine), source.acknowledged) == ([], [])
    assert source.closed
    await deliver(booking(), MemorySource(batch), looped())
    assert amounts(engine) == [1, 2, 3]


async def cancelled_at_many_moments(looped, *, seed, **options):
    """Deliver sixty events to subscribers that are cancelled again and again, the last one alone to its end."""
    chance, batch = random.Random(seed), arrivals(*range(60))
    for _ in range(25):
        source = MemorySource(batch[:20], batch[20:40], batch[40:])
        declared = booking(waits=0.001, **options)
        task = asyncio.create_task(deliver(declared, source, looped()))
        await asyncio.wait({task}, timeout=chance.uniform(0, 0.12))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() or not task.exception()
    await deliver(booking(**options), MemorySource(batch), looped())


async def test_whenever_subscribers_are_cancelled_every_event_is_handled_once(engine, looped):
    await cancelled_at_many_moments(looped, seed=7)
    assert sorted(amounts(engine)) == list(range(60))


async def test_while_handlers_wait_and_while_they_are_tried_again_other_tasks_work(engine, looped):
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.01)

    counting = asyncio.create_task(count())
    failing = booking(fails_on=(1,), attempts=2, backoff=0.5)
    assert (await deliver(failing, MemorySource(arrivals(1)), looped())).dead == 1
    counting.cancel()
    assert turns > 25


async def test_handlers_that_wait_for_nothing_let_other_tasks_work_too():
    seen, turns = [], []

    async def spin(event: Payment.Received) -> None:
        seen.append(event.amount)
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass

    async def count():
        while True:
            turns.append(len(seen))
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await deliver(subscription("payments", group="g")(spin), MemorySource(arrivals(*range(100))))
    counting.cancel()
    assert len({done for done in turns if 0 < done < 100}) >= 5


async def test_the_source_and_its_dead_letters_wait_in_other_threads_and_reports_are_told_on_the_loop(looped):
    here, threads, told = threading.get_ident(), {}, []
    source, stop = MemorySource(arrivals(1, 2)), asyncio.Event()
    for step in ("open", "poll", "acknowledge", "dead_letter", "close"):
        real = getattr(source, step)
        setattr(source, step, lambda *given, s=step, r=real: (threads.update({s: threading.get_ident()}), r(*given))[1])

    def tell(report):
        told.append((report.handled, report.dead, threading.get_ident()))
        stop.set()

    async with AsyncSubscriber(booking(fails_on=(2,), attempts=1), source, engine=looped()) as subscriber:
        await subscriber.run(stop=stop, on_batch=tell)
    assert told == [(1, 1, here)]
    assert len(threads) == 5
    assert here not in threads.values()


async def test_the_place_in_a_store_moves_in_the_handlers_transaction(engine, looped):
    with SqlEventStore(engine) as store:
        store.create_tables()
        for amount in (1, 2):
            store.append(f"payment-{amount}", [Payment.Received(amount=amount)], expected=ANY)
        for expected in (2, 0):
            declared = booking()
            async with AsyncSubscriber(
                declared, StoreSource(store, declared, category="payment"), engine=looped()
            ) as subscriber:
                assert (await subscriber.run_once(timeout=0)).handled == expected
                assert (await subscriber.lag()).records == 0
    assert amounts(engine) == [1, 2]


async def test_a_handler_is_delivered_to_by_the_subscriber_of_its_kind(engine, looped):
    with raises(DeclarationError, match="is a coroutine function", remedy="AsyncSubscriber"):
        Subscriber(booking(), MemorySource(), engine=engine)
    with raises(DeclarationError, match="is a plain function", remedy="async def"):
        await deliver(handlers.booking(), MemorySource(), looped())


async def test_what_cannot_be_opened_is_refused_and_leaves_no_thread(looped):
    with pytest.raises(DeclarationError, match="autocommit"):
        await deliver(booking(), MemorySource(), looped(isolation_level="AUTOCOMMIT"))
    with pytest.raises(DeclarationError, match="no database"):
        await deliver(booking(), MemorySource())
    with pytest.raises(SubscriptionError, match="not open"):
        await AsyncSubscriber(booking(), MemorySource()).run()
    wait_until(lambda: not any(t.name == "consumer of books" for t in threading.enumerate()))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


# ---- Commands sent on an event loop: many at once, through middleware of either kind


@pytest.fixture
def opened(tmp_path):
    """A store whose tables are there."""

    @asynccontextmanager
    async def opened():
        async with AsyncSqlEventStore(f"sqlite:///{tmp_path}/events.db") as store:
            await store.create_tables()
            yield store

    return opened


async def test_a_command_is_accepted_with_what_was_recorded_or_refused_with_its_reason(opened):
    async with opened() as store:
        dispatcher = AsyncDispatcher(store)
        accepted = await dispatcher.with_metadata(Metadata(correlation_id="order 7")).send("a", Counter.add, 3)
        assert isinstance(accepted, Accepted)
        assert [event async for event in store.read_stream("counter-a")] == list(accepted.events)
        assert accepted.events[0].metadata.correlation_id == "order 7"
        refusal = await dispatcher.send("a", Counter.add, by=3, at_most=2)
        assert isinstance(refusal, Refusal)
        assert refusal.reason == "3 and 3 are more than 2"
        assert (await dispatcher.send_or_raise("a", Counter.add, 1)).version == 1
        with pytest.raises(Refused, match="4 and 3 are more than 2"):
            await dispatcher.send_or_raise("a", Counter.add, by=3, at_most=2)


async def test_while_a_lost_race_waits_other_tasks_work(opened, monkeypatch):
    """Three attempts wait for some milliseconds; the pause of the synchronous dispatcher would be the loop's."""
    slept, loop, pause = [], threading.get_ident(), time.sleep

    def sleep(seconds):
        if threading.get_ident() == loop:
            slept.append(seconds)
        else:  # a thread that an earlier test left, such as Spark's
            pause(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    async with opened() as store:
        real, lost = store.sync_store.append, []

        def raced(stream, events, **options):
            if len(lost) < 3:
                lost.append(real(stream, [Counter.Counted(by=1)], expected=ANY))
            return real(stream, events, **options)

        monkeypatch.setattr(store.sync_store, "append", raced)
        assert (await AsyncDispatcher(store).send("a", Counter.add, 1)).version == 3
    assert slept == []


def noting_later(name, into):
    async def middleware(command, send):
        into.append(f"{name} before {command.name}")
        await asyncio.sleep(0)
        result = await send(command)
        into.append(f"{name} after {type(result).__name__}")
        return result

    return middleware


@pytest.mark.parametrize(
    ("one", "two"), [(noting, noting_later), (noting_later, noting), (noting, noting), (noting_later, noting_later)]
)
async def test_middleware_of_either_kind_stands_around_the_other(opened, one, two):
    seen = []
    async with opened() as store:
        dispatcher = AsyncDispatcher(store, middleware=[one("one", seen), two("two", seen)])
        assert (await dispatcher.send("a", Counter.add, 1)).version == 0
        assert seen == ["one before counter.add", "two before counter.add", "two after Accepted", "one after Accepted"]
        seen.clear()
        assert isinstance(await dispatcher.send("a", Counter.add, 1, at_most=1), Refusal)
        assert seen == ["one before counter.add", "two before counter.add", "two after Refusal", "one after Refusal"]


async def test_the_middleware_that_comes_with_the_package_serves_both(opened):
    async with opened() as store:
        dispatcher = AsyncDispatcher(store, middleware=[logged(), required(lambda command: "no")])
        assert (await dispatcher.send("a", Counter.add, 1)).reason == "no"


async def test_while_middleware_waits_other_commands_are_carried_out(opened):
    going_on = asyncio.Event()

    async def first(command, send):
        await going_on.wait()
        return await send(command)

    async with opened() as store:
        waiting = asyncio.create_task(AsyncDispatcher(store, middleware=[first]).send("a", Counter.add, 1))
        assert (await AsyncDispatcher(store).send("a", Counter.add, 1)).version == 0
        going_on.set()
        assert (await waiting).version == 1


async def test_a_command_that_is_cancelled_in_middleware_is_not_carried_out(opened):
    begun = asyncio.Event()

    async def hang(command, send):
        begun.set()
        await asyncio.sleep(3600)
        return await send(command)

    async with opened() as store:
        task = asyncio.create_task(AsyncDispatcher(store, middleware=[hang]).send("a", Counter.add, 1))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.head("counter-a") is None
        assert store.engine.pool.checkedout() == 0


def test_every_method_has_its_twin_with_the_same_parameters():
    def methods(kind):
        own = {name: one for name, one in vars(kind).items() if inspect.isfunction(one) and not name.startswith("_")}
        return {name: list(inspect.signature(one).parameters) for name, one in own.items()}

    assert methods(AsyncDispatcher) == methods(Dispatcher)
    assert list(inspect.signature(AsyncDispatcher).parameters) == list(inspect.signature(Dispatcher).parameters)
