"""What takes too long or pauses: handlers that are slow, halted, hung or paused, and databases that hang."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import sqlalchemy as sa
from confluent_kafka import Consumer

from eventstore import ANY, AsyncSubscriber, Settings, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import BrokerUnreachable, CheckpointMoved, StoreUnavailable, SubscriptionError
from eventstore.kafka.source import KafkaSource
from tests.errors import raises
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.handlers import booking, deliver
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource, arrivals, recorded
from tests.waiting import wait_until


def test_a_handler_that_hangs_ends_the_subscription_and_nothing_of_it_is_committed(engine):
    release = threading.Event()

    def hang(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == 2:
            release.wait(30)

    batch = arrivals(1, 2, 3)
    source = MemorySource(batch)
    declared = subscription("payments", group="books", timeout=0.1)(hang)
    with raises(SubscriptionError, code="handler-hung", match=r"hang did not return within 0\.1 s") as hung:
        deliver(declared, source, engine)
    assert hung.value.place == "2"
    assert source.closed
    # The lock of the transaction that was cut off is gone at once, and its records arrive again.
    assert deliver(booking(), MemorySource(batch), engine).handled == 3
    release.set()
    wait_until(lambda: not any(t.name == "handler of books" for t in threading.enumerate()))
    assert amounts(engine) == [1, 2, 3]
    assert source.acknowledged == []


def test_a_handler_without_a_transaction_that_hangs_ends_the_subscription_too():
    release, done = threading.Event(), []

    def hang(event: Payment.Received) -> None:
        if event.amount == 2:
            release.wait(30)
        done.append(event.amount)

    source = MemorySource(arrivals(1, 2, 3))
    with raises(SubscriptionError, code="handler-hung", match=r"hang did not return within 0\.1 s") as hung:
        deliver(subscription("payments", group="books", timeout=0.1)(hang), source)
    assert (hung.value.place, done) == ("2", [1])
    assert (source.acknowledged, source.dead) == ([], [])
    release.set()
    wait_until(lambda: not any(t.name == "handler of books" for t in threading.enumerate()))
    assert done == [1, 2]  # what hung comes back to a batch that is given up: the third is not begun


def test_a_slow_handler_keeps_its_place_in_the_group(engine):
    source = MemorySource(arrivals(1))
    going_on = threading.Event()
    source.during_keep_alive = lambda: going_on.set() if source.alive >= 3 else None

    def slow(event: Payment.Received, tx: sa.Connection) -> None:
        assert going_on.wait(30)

    assert deliver(subscription("payments", group="g", timeout=30)(slow), source, engine).handled == 1
    assert source.alive >= 3


def test_a_database_that_hangs_ends_the_subscription_as_a_handler_does(engine):
    """Not only calls have an end: here the place after the batch cannot be written."""
    release, source = threading.Event(), MemorySource(arrivals(1, 2))
    source.checkpoint = lambda tx, done: release.wait(60)
    declared = booking(timeout=0.2)
    began = time.monotonic()
    with Subscriber(declared, source, engine=engine, patience=0.2) as subscriber:
        with pytest.raises(StoreUnavailable, match="waited for its database for too long, to commit"):
            subscriber.run_once(timeout=0)
    assert time.monotonic() - began < 20
    release.set()
    wait_until(lambda: not any(t.name == "handler of books" for t in threading.enumerate()))
    assert (amounts(engine), source.acknowledged, source.dead) == ([], [], [])


def slow_booking(calls, **options):
    """A minute's work in a batch of 1,200 records."""

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        calls.append(event.amount)
        time.sleep(0.05)
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription("payments", group="books", **options)(book)


def slow_noting(calls):
    def note(event: Payment.Received) -> None:
        calls.append(event.amount)
        time.sleep(0.05)

    return subscription("payments", group="books")(note)


@pytest.mark.parametrize("declared", [slow_booking, slow_noting])
def test_partitions_taken_away_wait_for_the_call_at_hand_and_what_is_left_of_the_batch_comes_next(engine, declared):
    calls, source = [], MemorySource(arrivals(*range(1200)))

    def revoked():
        source.during_keep_alive = None
        began = time.monotonic()
        source.on_revoked()
        took.append(time.monotonic() - began)
        assert source.acknowledged == [str(amount) for amount in calls]

    took: list[float] = []
    source.during_keep_alive = revoked
    with Subscriber(declared(calls), source, engine=engine) as subscriber:
        done = subscriber.run_once(timeout=0).handled
        assert 0 < done < 1200
        assert took[0] < 10
        (left,) = source.waiting
        source.waiting = [left[:3]]
        assert subscriber.run_once(timeout=0).handled == 3
    assert calls == list(range(done + 3))
    assert source.acknowledged == [str(amount) for amount in calls]


@pytest.mark.parametrize("guarantee", ["effectively-once", "at-least-once"])
def test_a_stop_ends_the_batch_after_the_call_at_hand_and_the_rest_arrives_again(engine, guarantee):
    stop, calls, batch = threading.Event(), [], arrivals(*range(1200))
    threading.Timer(0.3, stop.set).start()
    began, source = time.monotonic(), MemorySource(batch)
    with Subscriber(slow_booking(calls, guarantee=guarantee), source, engine=engine) as subscriber:
        done = subscriber.run(stop=stop).handled
    assert time.monotonic() - began < 20
    assert 0 < done < 1200
    assert amounts(engine) == calls == list(range(done))
    assert source.acknowledged == [str(amount) for amount in calls]
    again = MemorySource(batch[: done + 3] if guarantee == "effectively-once" else batch[done : done + 3])
    report = deliver(booking(guarantee=guarantee), again, engine)
    assert report.handled == 3
    assert amounts(engine) == list(range(done + 3))


def test_a_halted_batch_counts_what_it_skipped_and_what_it_knew(engine):
    stop, (known, *others) = threading.Event(), arrivals(1, 2, 3, 4)
    deliver(booking(), MemorySource([known]), engine)
    skipped = MemoryArrival(recorded(9, kind=Payment.Refunded), "9")

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        stop.set()
        assert halted.wait(30)

    source = MemorySource([known, skipped, others[0], known, skipped, *others[1:]])
    with Subscriber(subscription("payments", group="books")(book), source, engine=engine) as subscriber:
        halted = subscriber._halt
        report = subscriber.run(stop=stop)
    assert (report.handled, report.duplicates, report.skipped) == (1, 2, 2)
    assert source.acknowledged == ["1", "9", "2", "1", "9"]
    assert [arrival.place for arrival in source.waiting[0]] == ["3", "4"]


def test_a_stop_ends_the_pause_before_a_retry_and_what_was_done_is_acknowledged(engine):
    stop, source = threading.Event(), MemorySource(arrivals(1, 2, 3))

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        if event.amount == 2:
            stop.set()
            raise ValueError("try again in a minute")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    began = time.monotonic()
    declared = subscription("payments", group="books", backoff=60)(book)
    with Subscriber(declared, source, engine=engine) as subscriber:
        report = subscriber.run(stop=stop)
    assert time.monotonic() - began < 50
    assert (report.handled, source.acknowledged, amounts(engine)) == (1, ["1"], [1])


def test_a_pause_ends_a_batch_after_the_call_at_hand_and_nothing_is_lost_or_repeated():
    seen, source, paused = [], MemorySource(arrivals(1, 2, 3)), threading.Event()

    def note(event: Payment.Received) -> None:
        seen.append(event.amount)
        if event.amount == 1:
            subscriber.pause()
            assert paused.wait(10)

    source.during_keep_alive = paused.set  # the subscriber looks at its handler before that
    with Subscriber(subscription("payments", group="g")(note), source) as subscriber:
        assert subscriber.run_once(timeout=0).handled == 1
        assert (seen, source.acknowledged) == ([1], ["1"])
        subscriber.resume()
        assert subscriber.run_once(timeout=0).handled == 2
    assert seen == [1, 2, 3]


def test_a_resume_wakes_a_subscriber_that_waits():
    source = MemorySource(arrivals(1))

    def note(event: Payment.Received) -> None: ...

    with Subscriber(subscription("payments", group="g")(note), source) as subscriber:
        subscriber.pause()
        source.during_keep_alive = subscriber.resume
        assert subscriber.run_once(timeout=30).records == 0
        assert subscriber.run_once(timeout=0).handled == 1


def test_an_intake_bounds_what_the_client_fetches():
    def note(event: Payment.Received) -> None: ...

    declared = subscription("payments", group="g", intake=3 << 20)(note)
    wanted = KafkaSource(declared, Settings.for_broker("127.0.0.1:1"))._consumer_settings()
    assert (wanted["queued.max.messages.kbytes"], wanted["fetch.max.bytes"]) == (1024, 1 << 20)
    Consumer(wanted).close()  # librdkafka accepts them together


# ---- Handlers in parallel: each has streams of its own, in their order, and nothing behind an unsettled record is lost


def streams(*names):
    """Records with places 0, 1, 2 …, each of the stream that is named."""
    return [MemoryArrival(recorded(at, stream=f"payment-{name}"), str(at)) for at, name in enumerate(names)]


def of_two_lanes():
    """Two streams that the two lanes of this process part."""
    first, *others = (f"s{n}" for n in range(100))
    other = next(one for one in others if hash(f"payment-{one}") % 2 != hash(f"payment-{first}") % 2)
    return first, other


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


def lane_booking(**options):
    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    return subscription("payment", group="books", batch=8, **options)(book)


def test_a_store_moves_its_checkpoint_behind_all_handlers_of_a_batch(store):
    declared = lane_booking(parallel=3)
    for expected in (8, 8, 4, 0):
        with Subscriber(declared, StoreSource(store, declared, category="payment"), engine=store.engine) as subscriber:
            assert subscriber.run_once(timeout=0).records == expected
    assert sorted(amounts(store.engine)) == list(range(20))


def test_two_subscribers_with_parallel_handlers_book_an_event_once_and_one_of_them_ends(store):
    declared = lane_booking(parallel=2)
    one = StoreSource(store, declared, category="payment")
    with Subscriber(declared, one, engine=store.engine) as slow:
        with Subscriber(declared, StoreSource(store, declared, category="payment"), engine=store.engine) as other:
            assert other.run_once(timeout=0).handled == 8
        with pytest.raises(CheckpointMoved):
            slow.run_once(timeout=0)
    assert sorted(amounts(store.engine)) == list(range(8))
