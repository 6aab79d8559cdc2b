"""Handlers in parallel: each has streams of its own, in their order, and nothing behind an unsettled record is lost."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict

import pytest
import sqlalchemy as sa

from eventstore import ANY, AsyncSubscriber, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import BrokerUnreachable, CheckpointMoved, SubscriptionError
from tests.errors import raises
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource, recorded


def streams(*names):
    """Records with places 0, 1, 2 …, each of the stream that is named."""
    return [MemoryArrival(recorded(at, stream=f"payment-{name}"), str(at)) for at, name in enumerate(names)]


def of_two_lanes():
    """Two streams that the two lanes of this process part."""
    first, *others = (f"s{n}" for n in range(100))
    other = next(one for one in others if hash(f"payment-{one}") % 2 != hash(f"payment-{first}") % 2)
    return first, other


def test_handlers_work_at_once_and_a_stream_stays_in_order():
    first, other = of_two_lanes()
    both, seen = threading.Barrier(2), defaultdict(list)

    def note(event: Payment.Received) -> None:
        if event.amount < 2:
            both.wait(10)  # which one handler alone would not get past
        seen[threading.current_thread()].append(event.amount)

    source = MemorySource(streams(first, other, first, other, first))
    report = deliver(subscription("payments", group="g", parallel=2)(note), source)
    assert report.handled == 5
    assert sorted(seen.values()) == [[0, 2, 4], [1, 3]]
    assert source.acknowledged == ["0", "1", "2", "3", "4"]


def halting(first, other, seen):
    """A handler that waits at the first record until the other stream is through, and halts its subscriber then."""
    through = threading.Event()

    def note(event: Payment.Received) -> None:
        if event.amount == 0:
            assert through.wait(10)
            subscriber.on_call()
        seen.append(event.amount)
        if event.amount == 3:
            through.set()

    subscriber = type("Held", (), {"on_call": lambda self: None})()
    return note, subscriber


def test_what_is_done_behind_a_record_that_is_not_is_not_handled_again_in_the_next_batch():
    first, other = of_two_lanes()
    seen = []
    note, held = halting(first, other, seen)
    source = MemorySource(streams(first, other, first, other))
    with Subscriber(subscription("payments", group="g", parallel=2)(note), source) as subscriber:
        held.on_call = subscriber._halt.set
        assert subscriber.run_once(timeout=0).handled == 3
        assert (sorted(seen), source.acknowledged) == ([0, 1, 3], ["0", "1"])
        assert subscriber.run_once(timeout=0).handled == 1
        assert (seen[-1], source.acknowledged) == (2, ["0", "1", "2", "3"])
    assert sorted(seen) == [0, 1, 2, 3]


def test_no_offset_behind_a_record_that_failed_is_acknowledged(engine):
    """One handler cannot store its dead letter; the records that another one settled arrive again, and are known."""
    first, other = of_two_lanes()
    batch = streams(first, other, first, other)

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        if event.amount == 0:
            raise ValueError("zero fails")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    declared = subscription("payments", group="g", parallel=2, attempts=1)(book)
    source = MemorySource(batch, fails={"dead_letter": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(declared, source, engine)
    assert source.acknowledged == []
    again = MemorySource(batch)
    report = deliver(declared, again, engine)
    assert report.dead == 1
    assert report.handled + report.duplicates == 3
    assert (sorted(amounts(engine)), again.acknowledged) == ([1, 2, 3], ["0", "1", "2", "3"])


def test_each_handler_has_a_transaction_of_its_own_and_every_event_happens_once(engine):
    lots = [f"s{at % 7}" for at in range(200)]

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    declared = subscription("payments", group="g", parallel=4)(book)
    batch = streams(*lots)
    report = deliver(declared, MemorySource(batch, batch[50:]), engine)
    assert (report.handled, report.duplicates) == (200, 150)
    booked = amounts(engine)
    assert sorted(booked) == list(range(200))
    for stream in range(7):
        own = [amount for amount in booked if amount % 7 == stream]
        assert own == sorted(own)


@pytest.mark.parametrize("how", ["hangs", "cannot store its dead letter"])
def test_a_handler_that_fails_for_good_ends_the_others_after_their_calls_at_hand(how):
    first, other = of_two_lanes()
    never, seen = threading.Event(), []

    def note(event: Payment.Received) -> None:
        if event.amount == 0 and how == "hangs":
            never.wait(30)
        if event.amount == 0:
            raise ValueError("zero fails")
        seen.append(event.amount)
        subscriber._halt.wait(0.05)

    fails = {"dead_letter": [BrokerUnreachable("no broker", remedy="start one")]}
    source = MemorySource(streams(first, *[other] * 100), fails=fails)
    declared = subscription("payments", group="g", parallel=2, attempts=1, timeout=0.3)(note)
    with Subscriber(declared, source) as subscriber:
        with raises(SubscriptionError, code="handler-hung") if how == "hangs" else pytest.raises(BrokerUnreachable):
            subscriber.run_once(timeout=0)
    never.set()
    assert (len(seen) < 100, source.acknowledged) == (True, [])


async def test_coroutines_work_at_once_on_one_loop():
    first, other = of_two_lanes()
    met, seen = asyncio.Barrier(2), []

    async def note(event: Payment.Received) -> None:
        if event.amount < 2:
            await asyncio.wait_for(met.wait(), 10)
        seen.append(event.amount)

    source = MemorySource(streams(first, other, first, other))
    async with AsyncSubscriber(subscription("payments", group="g", parallel=2)(note), source) as subscriber:
        assert (await subscriber.run_once(timeout=0)).handled == 4
    assert (sorted(seen), source.acknowledged) == ([0, 1, 2, 3], ["0", "1", "2", "3"])


@pytest.fixture
def store(store_url):
    with SqlEventStore(store_url) as store:
        for amount in range(20):
            store.append(f"payment-{amount % 3}", [Payment.Received(amount=amount)], expected=ANY)
        yield store


def booking(**options):
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription("payment", group="books", batch=8, **options)(book)


def test_a_store_moves_its_checkpoint_behind_all_handlers_of_a_batch(store):
    declared = booking(parallel=3)
    for expected in (8, 8, 4, 0):
        with Subscriber(declared, StoreSource(store, declared, category="payment"), engine=store.engine) as subscriber:
            assert subscriber.run_once(timeout=0).records == expected
    assert sorted(amounts(store.engine)) == list(range(20))


def test_two_subscribers_with_parallel_handlers_book_an_event_once_and_one_of_them_ends(store):
    declared = booking(parallel=2)
    one = StoreSource(store, declared, category="payment")
    with Subscriber(declared, one, engine=store.engine) as slow:
        with Subscriber(declared, StoreSource(store, declared, category="payment"), engine=store.engine) as other:
            assert other.run_once(timeout=0).handled == 8
        with pytest.raises(CheckpointMoved):
            slow.run_once(timeout=0)
    assert sorted(amounts(store.engine)) == list(range(8))
