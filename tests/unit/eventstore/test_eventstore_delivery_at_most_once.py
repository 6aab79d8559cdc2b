"""Records that are taken as done before they are handled: a crash loses what was at hand, and nothing is repeated."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eventstore import ANY, SqlEventStore, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import BrokerUnreachable, SubscriptionError
from eventstore.kafka.arrivals import KafkaArrival
from eventstore.kafka.places import Places
from eventstore.kafka.source import KafkaSource
from tests.errors import raises
from tests.ledger import Payment
from tests.rows import each_row
from tests.unit.eventstore.client_records import Message
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemorySource, arrivals


def noting(into, *, each=lambda amount: None, **options):
    def note(event: Payment.Received) -> None:
        into.append(event.amount)
        each(event.amount)

    return subscription("payment", group="g", guarantee="at-most-once", **options)(note)


def test_records_are_taken_before_the_handler_is_called_and_not_acknowledged_behind_it():
    seen, source = [], MemorySource(arrivals(1, 2), arrivals(3))
    declared = noting(seen, each=lambda amount: taken.append(list(source.taken)))
    taken = []
    assert deliver(declared, source).handled == 3
    assert (taken, source.acknowledged) == ([["1", "2"], ["1", "2"], ["1", "2", "3"]], [])


def test_nothing_is_handled_that_could_not_be_taken():
    seen, source = [], MemorySource(arrivals(1), fails={"take": [BrokerUnreachable("no broker", remedy="start one")]})
    with pytest.raises(BrokerUnreachable):
        deliver(noting(seen), source)
    assert seen == []


def test_a_record_whose_handler_fails_is_a_dead_letter_after_one_call():
    seen, source = [], MemorySource(arrivals(1, 2, 3))
    report = deliver(noting(seen, each=lambda amount: 1 // (amount - 2)), source)
    assert (seen, report.handled, report.dead, report.retried) == ([1, 2, 3], 2, 1, 0)
    assert [letter.arrival.place for letter in source.dead] == ["2"]


def test_the_error_of_a_handler_that_hangs_says_that_records_are_lost():
    never = threading.Event()
    declared = noting([], each=lambda amount: never.wait(30), timeout=0.05)
    with raises(SubscriptionError, code="handler-hung") as hung:
        deliver(declared, MemorySource(arrivals(1)))
    never.set()
    assert "what was at hand is lost" in hung.value.remedy


@pytest.fixture
def store(store_url):
    with SqlEventStore(store_url) as store:
        for amount in (1, 2, 3):
            store.append("payment-1", [Payment.Received(amount=amount)], expected=ANY)
        yield store


def run(store, declared):
    """Deliver one batch; the halt that a handler sets ends it."""
    with Subscriber(declared, StoreSource(store, declared, category="payment")) as subscriber:
        halts.append(subscriber._halt)
        return subscriber.run_once(timeout=0)


halts = []


def test_what_a_stopped_subscriber_had_taken_and_not_handled_is_handled_by_the_next_one(store):
    seen = []
    halted = noting(seen, each=lambda amount: halts[-1].set())
    assert run(store, halted).handled == 1
    assert run(store, halted).handled == 1
    assert run(store, noting(seen)).handled == 1
    assert seen == [1, 2, 3]


def test_what_a_killed_subscriber_had_taken_is_not_handled_again(store):
    seen = []
    source = StoreSource(store, noting(seen), category="payment")
    source.open(lambda: None)
    source.take(source.poll(0))
    assert run(store, noting(seen)).records == 0
    assert seen == []


class Consumer:
    def __init__(self, *, fails=None):
        self.fails = fails
        self.commits = []

    def commit(self, *, offsets, asynchronous):
        if self.fails is not None:
            raise KafkaException(KafkaError(self.fails))
        self.commits.append(({(p.topic, p.partition): p.offset for p in offsets}, asynchronous))
        return offsets


def places(**options):
    consumer = Consumer(**options)
    found = Places(consumer)
    found.given([TopicPartition("payment", 0), TopicPartition("payment", 1)])
    return found, consumer


def test_offsets_are_committed_before_and_given_back_as_far_as_records_were_not_handled():
    taken, consumer = places()
    assert taken.take([Message(offset=3), Message(offset=7, partition=1), Message(offset=4)])
    taken.undone([(("payment", 0), 4)])
    taken.commit_now()
    assert consumer.commits == [
        ({("payment", 0): 5, ("payment", 1): 8}, False),
        ({("payment", 0): 4}, False),
    ]


def test_records_that_are_given_back_move_no_offset_that_was_not_committed_before():
    taken, consumer = places()
    taken.undone([(("payment", 0), 4)])
    taken.commit_now()
    assert consumer.commits == []


@each_row("code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION])
def test_while_the_group_moves_partitions_nothing_is_taken(code):
    assert not places(fails=code)[0].take([Message(offset=3)])


@each_row("code", [KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_a_commit_whose_answer_is_not_known_ends_the_subscriber_before_the_handler(code):
    with pytest.raises(KafkaException):
        places(fails=code)[0].take([Message(offset=3)])


def test_records_that_are_given_back_are_the_next_batch_and_not_done():
    source, (taken, consumer) = object.__new__(KafkaSource), places()
    source._places, source._ahead, source._servers, source._reads = taken, [], "", ""
    batch = [KafkaArrival(Message(offset=offset)) for offset in (3, 4, 5)]
    assert source.take(batch) == batch
    source.give_back(batch[1:])
    taken.commit_now()
    assert [offsets for offsets, _ in consumer.commits] == [{("payment", 0): 6}, {("payment", 0): 4}]
    assert source._ahead == batch[1:]


def test_records_that_could_not_be_taken_are_the_next_batch():
    source, (taken, _) = object.__new__(KafkaSource), places(fails=KafkaError.REBALANCE_IN_PROGRESS)
    source._places, source._ahead, source._servers, source._reads = taken, [], "", ""
    batch = [KafkaArrival(Message(offset=3))]
    assert (source.take(batch), source._ahead) == ([], batch)
