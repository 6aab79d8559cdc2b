"""A subscriber that pauses ends the batch at hand after a call, stays a member, and goes on with the next record."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer

from eventstore import Settings, subscription
from eventstore.delivery import AsyncSubscriber, Subscriber
from eventstore.kafka.source import KafkaSource
from tests.ledger import Payment
from tests.unit.eventstore.memory_source import MemorySource, arrivals


def test_a_paused_subscriber_polls_nothing_and_stays_a_member():
    seen, source = [], MemorySource(arrivals(1), arrivals(2))

    def note(event: Payment.Received) -> None:
        seen.append(event.amount)

    with Subscriber(subscription("payments", group="g")(note), source) as subscriber:
        subscriber.run_once(timeout=0)
        subscriber.pause()
        assert subscriber.run_once(timeout=0).records == 0
        assert (seen, source.alive, source.acknowledged) == ([1], 1, ["1"])
        subscriber.resume()
        subscriber.run_once(timeout=0)
    assert (seen, source.acknowledged) == ([1, 2], ["1", "2"])


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


async def test_a_subscriber_of_coroutines_pauses_too():
    seen, source = [], MemorySource(arrivals(1))

    async def note(event: Payment.Received) -> None:
        seen.append(event.amount)

    async with AsyncSubscriber(subscription("payments", group="g")(note), source) as subscriber:
        subscriber.pause()
        assert (await subscriber.run_once(timeout=0)).records == 0
        subscriber.resume()
        assert (await subscriber.run_once(timeout=0)).handled == 1
    assert seen == [1]


def test_an_intake_bounds_what_the_client_fetches():
    def note(event: Payment.Received) -> None: ...

    declared = subscription("payments", group="g", intake=3 << 20)(note)
    wanted = KafkaSource(declared, Settings.for_broker("127.0.0.1:1"))._consumer_settings()
    assert (wanted["queued.max.messages.kbytes"], wanted["fetch.max.bytes"]) == (1024, 1 << 20)
    Consumer(wanted).close()  # librdkafka accepts them together
