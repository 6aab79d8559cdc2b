"""Records that are put off: in the retry topic they wait for their time, and nothing waits for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition

from eventstore.errors import BrokerUnreachable
from eventstore.kafka.arrivals import KafkaArrival, Retry, retry_of
from eventstore.kafka.places import Places
from eventstore.kafka.source import Holding, KafkaSource
from tests.ledger import amounts
from tests.rows import each_row
from tests.unit.eventstore.client_records import Message
from tests.unit.eventstore.handlers import booking, deliver, ending
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource, arrivals

DELAYS = [timedelta(seconds=10), timedelta(minutes=5)]


def again(source):
    """The records that were put off, as their topic gives them back."""
    return [replace(letter.arrival, retries=letter.arrival.retries + 1) for letter, _ in source.postponed]


def test_a_record_that_fails_is_put_off_once_for_each_delay_and_given_up_at_last(engine):
    declared = booking(fails_on=[2], retry=DELAYS)
    waits, source = [], MemorySource(arrivals(1, 2, 3))
    for _ in DELAYS:
        report = deliver(declared, source, engine)
        assert (report.postponed, report.dead, report.retried) == (1, 0, 0)
        waits += [after for _, after in source.postponed]
        source = MemorySource(again(source))
    report = deliver(declared, source, engine)
    assert (waits, report.postponed, report.dead, source.acknowledged) == (DELAYS, 0, 1, ["2"])
    assert amounts(engine) == [1, 3]


def test_a_record_that_was_put_off_is_handled_once_however_often_it_was_written(engine):
    """A process that was killed between the two wrote it, and then got the record again."""
    declared = booking(fails_on=[2], fails_times=2, retry=DELAYS)
    batch = arrivals(1, 2)
    first = MemorySource(batch, fails={"acknowledge": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(declared, first, engine)
    second = MemorySource(batch)
    report = deliver(declared, second, engine)
    assert (report.duplicates, report.postponed) == (1, 1)
    report = deliver(declared, MemorySource(again(first), again(second)), engine)
    assert (report.handled, report.duplicates) == (1, 1)
    assert amounts(engine) == [1, 2]


def test_a_record_that_could_not_be_put_off_is_not_acknowledged(engine):
    source = MemorySource(arrivals(1, 2), fails={"postpone": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(booking(fails_on=[2], retry=DELAYS), source, engine)
    assert (source.acknowledged, amounts(engine)) == (["1"], [1])


def test_what_cannot_succeed_later_is_given_up_at_once(engine):
    """Data that does not fit, a record without an event, a handler that committed a part of its effects."""
    broken = MemoryArrival(None, "broken", BrokerUnreachable("unreadable", remedy="look"))
    source = MemorySource([broken, *arrivals(1, 2)])
    declared = ending(lambda tx: tx.connection.driver_connection.commit(), at=2, retry=DELAYS)
    assert deliver(declared, source, engine).dead == 2
    assert source.postponed == []
    assert amounts(engine) == [1, 2]


def of_retry(offset, *, partition=1, error=None):
    """A record of a partition of a retry topic, or the client's word that there is no more."""
    return Message(topic="payment.books.retry", partition=partition, offset=offset, error=error)


class Consumer:
    def __init__(self):
        self.paused, self.commits = set(), []

    def commit(self, *, offsets, asynchronous):
        self.commits += [(p.partition, p.offset) for p in offsets]

    def pause(self, partitions):
        self.paused |= {p.partition for p in partitions}

    def resume(self, partitions):
        self.paused -= {p.partition for p in partitions}


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def waiting(offset, seconds, *, partition=1):
    retry = None if seconds is None else Retry(NOW + timedelta(seconds=seconds), 1, 1, "payment", 0, 5)
    return KafkaArrival(of_retry(offset, partition=partition), retry=retry)


def held(*each):
    """What is held of records, the clock to move, and the consumer."""
    clock, consumer = [NOW], Consumer()
    holding = Holding(consumer, clock=lambda: clock[0])
    passed = [arrival.offset for arrival in each if holding.passed(arrival)]
    return holding, clock, consumer, passed


def test_records_wait_for_their_time_and_those_behind_them_in_the_partition_too():
    each = [waiting(0, -1), waiting(1, 10), waiting(2, None), waiting(3, 20), waiting(9, 0, partition=2)]
    holding, clock, consumer, passed = held(*each)
    assert (passed, consumer.paused, holding.due()) == ([0, 9], {1}, [])
    clock[0] += timedelta(seconds=10)
    assert ([a.offset for a in holding.due()], consumer.paused) == ([1, 2], {1})
    clock[0] += timedelta(seconds=10)
    assert ([a.offset for a in holding.due()], consumer.paused, holding.due()) == ([3], set(), [])


def test_what_is_held_of_a_partition_that_was_taken_away_is_forgotten():
    holding, clock, _, _ = held(waiting(1, 10), waiting(5, 10, partition=2))
    holding.drop(lambda arrival: arrival.message.partition() == 2)
    clock[0] += timedelta(seconds=10)
    assert [a.offset for a in holding.due()] == [5]


def test_what_a_record_of_a_retry_topic_says_of_itself_is_read_as_it_was_written():
    retry = Retry(NOW, 2, 3, "payment", 4, 17)
    assert retry_of([("ce_id", b"x"), *retry.headers()]) == retry
    assert retry_of([("ce_id", b"x")]) is None


HEADERS = dict(Retry(NOW, 2, 3, "payment", 4, 17).headers())
MISSTATED = {"due": (b"tomorrow", b"2026-01-01T00:00:00", None), "number": (b"x",), "offset": (b"",)}


@each_row(
    ("headers", "words"),
    [
        *((HEADERS | {f"retry_{name}": value}, r"isoformat|has no zone|invalid literal")
          for name, values in MISSTATED.items() for value in values),
        *(({key: value for key, value in HEADERS.items() if key != f"retry_{missing}"}, f"retry_{missing}")
          for missing in ("due", "number", "attempts", "topic", "partition", "offset")),
    ],
)  # fmt: skip
def test_a_record_that_misstates_when_it_is_due_or_says_only_a_part_of_it_is_refused(headers, words):
    with pytest.raises(ValueError, match=words):
        retry_of(headers.items())


def reading(*, due):
    """A source that has partitions 1 and 2 of a retry topic, whose records are due in so many seconds."""
    source, consumer = object.__new__(KafkaSource), Consumer()
    retry = Retry(NOW + timedelta(seconds=due), 1, 1, "payment", 0, 5)
    source._consumer, source._places, source._paused = consumer, Places(consumer), True
    source._holding = Holding(consumer, clock=lambda: NOW)
    source._following = SimpleNamespace(origin=lambda topic: "payment", is_retried=lambda topic: True)
    source._reader = SimpleNamespace(read=lambda message, topic, again: KafkaArrival(message, retry=retry, topic=topic))
    source._places.given([TopicPartition("payment.books.retry", 1), TopicPartition("payment.books.retry", 2)])
    return source, consumer


@pytest.mark.parametrize(("due", "arrived", "committed"), [(10, 0, []), (-10, 1, [(1, 8)])])
def test_the_end_of_a_partition_whose_record_waits_moves_no_offset_behind_it(due, arrived, committed):
    source, consumer = reading(due=due)
    arrivals = source._arrivals(of_retry(7))
    source._arrivals(of_retry(8, error=KafkaError(KafkaError._PARTITION_EOF)))
    source._places.commit_idle()
    assert (len(arrivals), consumer.commits) == (arrived, committed)


def test_a_partition_that_waits_stays_paused_when_the_handler_is_through():
    source, consumer = reading(due=10)
    source._arrivals(of_retry(7))
    consumer.pause(source._places.owned())  # while a handler was slow
    source._resume()
    assert consumer.paused == {1}
