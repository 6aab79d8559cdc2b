"""Delivery to coroutine handlers: the guarantees of the other kind, and what only a loop has."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from eventstore import ANY, AsyncSubscriber, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import DeclarationError, SubscriptionError
from tests.errors import raises
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore import handlers
from tests.unit.eventstore.async_handlers import ENDINGS, assert_only_the_culprit_is_given_up, booking, deliver
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


async def test_the_inbox_is_the_one_of_plain_handlers(engine, looped):
    batch = arrivals(1, 2)
    await deliver(booking(), MemorySource(batch), looped())
    assert handlers.deliver(handlers.booking(), MemorySource(batch), engine).duplicates == 2
    assert amounts(engine) == [1, 2]


async def test_an_event_that_fails_is_tried_again_and_given_up_and_others_are_not_touched(engine, looped):
    source = MemorySource(arrivals(1, 2, 3, 4))
    report = await deliver(booking(fails_on=(2,), attempts=3), source, looped())
    assert (report.handled, report.retried, report.dead) == (3, 2, 1)
    assert (amounts(engine), source.acknowledged) == ([1, 3, 4], ["1", "2", "3", "4"])
    (letter,) = source.dead
    assert (letter.attempts, str(letter.error)) == (3, "no room for 2")


@pytest.mark.parametrize("how", ENDINGS.values(), ids=ENDINGS)
async def test_a_handler_that_ends_its_transaction_is_given_up_alone(engine, looped, how):
    await assert_only_the_culprit_is_given_up(how, engine=engine, looped=looped())


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


async def test_the_planted_fault_is_seen_without_an_inbox_events_are_handled_again(engine, looped):
    for rounds in range(1, 9):  # on a busy machine every cancellation of a round may come before the first commit
        await cancelled_at_many_moments(looped, seed=6 + rounds, guarantee="at-least-once")
        if len(amounts(engine)) > 60 * rounds:
            return
    pytest.fail("no event was handled again")


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


async def test_partitions_taken_away_wait_for_the_call_at_hand_only(engine, looped):
    calls, source = [], MemorySource(arrivals(*range(1200)))

    def revoked():
        source.during_keep_alive = None
        source.on_revoked()
        assert source.acknowledged == [str(amount) for amount in calls]

    source.during_keep_alive = revoked
    async with AsyncSubscriber(booking(waits=0.05, calls=calls), source, engine=looped()) as subscriber:
        done = (await subscriber.run_once(timeout=0)).handled
    assert 0 < done < 1200
    assert amounts(engine) == calls == list(range(done))


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
    with pytest.raises(DeclarationError, match="is a coroutine function") as refused:
        Subscriber(booking(), MemorySource(), engine=engine)
    assert "AsyncSubscriber" in refused.value.remedy
    with pytest.raises(DeclarationError, match="is a plain function") as refused:
        await deliver(handlers.booking(), MemorySource(), looped())
    assert "async def" in refused.value.remedy


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
