"""Queues: what may be declared, what a handler decides on a delivery, and what becomes of the record then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from confluent_kafka import IllegalStateException

from eventstore import Delivery, RecordedEvent, Settings, queue, subscription
from eventstore.errors import DeclarationError, SubscriptionError
from eventstore.kafka.arrivals import KafkaArrival
from eventstore.kafka.share_source import ShareSource, group_settings, lock_seconds
from tests.ledger import LEDGER, Payment, amounts
from tests.unit.eventstore.client_records import Message
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemorySource, arrivals


def book(event: Payment.Received, delivery: Delivery, tx: sa.Connection) -> None:
    tx.execute(sa.insert(LEDGER).values(amount=event.amount))
    if event.amount == 2:
        delivery.release()
    if event.amount == 3:
        delivery.reject("three is refused")
    if event.amount == 4:
        raise ValueError("four fails")


def review(event: Payment.Received) -> None: ...


def test_what_a_handler_releases_or_rejects_has_no_effects_and_its_neighbours_have_theirs(engine):
    source = MemorySource(arrivals(1, 2, 3, 4, 5))
    report = deliver(queue("payments", group="desk")(book), source, engine)
    assert (report.handled, report.postponed, report.dead) == (2, 2, 1)
    assert amounts(engine) == [1, 5]
    assert [letter.arrival.place for letter, _ in source.postponed] == ["2", "4"]
    (letter,) = source.dead
    assert (letter.arrival.place, type(letter.error).__name__, str(letter.error)) == (
        "3",
        "Rejected",
        "three is refused",
    )
    assert source.acknowledged == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("amount", [2, 4])
def test_a_record_that_was_delivered_so_often_as_it_may_be_is_a_dead_letter(engine, amount):
    """A release counts as well: a record that nobody takes must not go round for good."""
    (one,) = arrivals(amount)
    source = MemorySource([replace(one, retries=1)], [replace(one, retries=2)])
    report = deliver(queue("payments", group="desk", deliveries=3)(book), source, engine)
    assert (report.postponed, report.dead, len(source.postponed)) == (1, 1, 1)


def test_a_record_that_is_delivered_twice_is_handled_once(engine):
    """As when the lock of a worker ends while it commits."""
    (one,) = arrivals(1)
    report = deliver(queue("payments", group="desk")(book), MemorySource([one], [replace(one, retries=1)]), engine)
    assert (report.handled, report.duplicates, amounts(engine)) == (1, 1, [1])


def test_a_handler_is_told_the_count_and_the_place_of_a_delivery():
    seen = []

    def note(event: Payment.Received, delivery: Delivery, why: RecordedEvent) -> None:
        seen.append((delivery.count, delivery.place, why.version))

    one, two = arrivals(1, 2)
    deliver(queue("payments", group="desk")(note), MemorySource([one, replace(two, retries=3)]))
    assert seen == [(1, "1", 1), (4, "2", 2)]


def test_a_queue_tries_a_record_once_and_borrows_few():
    declared = queue([Payment], group="desk")(review)
    assert (declared.topics, declared.share, declared.guarantee) == (("payment",), True, "at-least-once")
    assert (declared.attempts, declared.batch, declared.timeout, declared.deliveries) == (1, 50, 20.0, 5)
    assert queue("payments", group="desk")(book).guarantee == "effectively-once"


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"guarantee": "at-most-once"}, "a queue is not at most once"),
        ({"deliveries": 0}, "deliveries 0 is no such number"),
        ({"deliveries": 10}, "deliveries 10 is no such number"),
        ({"timeout": 31}, "timeout 31 s is too long"),
        ({"start": datetime(2026, 1, 1, tzinfo=UTC)}, "a queue does not start at"),
        ({"retry": []}, "no option 'retry'"),
        ({"unreadable": "stop"}, "no option 'unreadable'"),
        ({"intake": 10**9}, "no option 'intake'"),
        ({"pattern": "p.*"}, "no option 'pattern'"),
    ],
)
def test_what_a_queue_cannot_promise_is_refused(options, cause):
    with pytest.raises(DeclarationError, match=cause) as refused:
        queue("payments", group="desk", **options)(review)
    assert refused.value.remedy


def test_only_a_queue_counts_deliveries_and_only_of_single_events():
    def many(events: list[Payment.Received], delivery: Delivery) -> None: ...
    def one(event: Payment.Received, delivery: Delivery) -> None: ...
    def none(delivery: Delivery) -> None: ...

    with pytest.raises(DeclarationError, match="takes no delivery"):
        subscription("payments", group="desk")(one)
    with pytest.raises(DeclarationError, match="a delivery and a list"):
        queue("payments", group="desk")(many)
    with pytest.raises(DeclarationError, match="does not take one event"):
        queue("payments", group="desk")(none)


@pytest.mark.parametrize(("timeout", "lock"), [(1, 15), (20, 40), (30, 60)])
def test_a_call_that_begins_in_the_first_half_of_a_lock_ends_within_it(timeout, lock):
    assert lock_seconds(timeout) == lock
    assert lock / 2 + timeout <= lock or timeout < lock / 2


def test_a_share_group_reads_what_was_committed_from_where_the_queue_starts():
    settings = group_settings(queue("payments", group="desk", start="end", timeout=10)(review))
    assert settings == {
        "share.auto.offset.reset": "latest",
        "share.isolation.level": "read_committed",
        "share.record.lock.duration.ms": "20000",
        "share.delivery.count.limit": "10",
    }


class Worker:
    """A share consumer that says what it was told of records."""

    def __init__(self, *messages, lost=()):
        self.messages, self.told, self.lost = list(messages), [], lost

    def poll(self, timeout):
        return [self.messages.pop(0)]

    def acknowledge_offset(self, topic, partition, offset, how):
        if offset in self.lost:
            raise IllegalStateException("not in flight")
        self.told.append((offset, how.name))

    def commit_sync(self, timeout):
        self.told.append("committed")
        return {}


def share_source(*messages, **options):
    source = ShareSource(queue("payment", group="desk", timeout=10)(review), Settings.for_broker("127.0.0.1:1"))
    source._consumer, source._ends = Worker(*messages, **options), {}
    source._reader = SimpleNamespace(
        read=lambda message, topic: KafkaArrival(message, "payment.received", "1", topic=topic),
        opened=lambda arrivals: arrivals,
    )
    return source


@pytest.mark.parametrize(("count", "is_last"), [(1, False), (9, False), (10, True)])
def test_a_record_at_its_last_delivery_meets_no_handler(count, is_last):
    """The broker would drop it without a trace, were the process to end once more."""
    (arrival,) = share_source(Message(deliveries=count)).poll(0)
    assert (arrival.retries, arrival.problem is not None) == (count - 1, is_last)
    if is_last:
        assert "delivered 10 times" in str(arrival.problem)


def test_the_broker_is_told_how_each_record_ended():
    source = share_source(*(Message() for _ in range(4)))
    done, late, dead, left = (source.poll(0)[0] for _ in range(4))
    for offset, arrival in enumerate((done, late, dead, left)):
        arrival.message = SimpleNamespace(topic=lambda: "payment", partition=lambda: 0, offset=lambda o=offset: o)
    source._letters = SimpleNamespace(bury=lambda letter: None)
    source.postpone(SimpleNamespace(arrival=late), timedelta(0))
    source.dead_letter(SimpleNamespace(arrival=dead))
    source.acknowledge([done, late, dead])
    source.give_back([left])
    assert source._consumer.told == [
        (0, "ACCEPT"), (1, "RELEASE"), (2, "REJECT"), "committed", (3, "RELEASE"), "committed"
    ]  # fmt: skip


def test_a_record_that_was_lent_to_another_worker_meanwhile_ends_nothing(capsys):
    source = share_source(Message(), lost=[7])
    source.acknowledge(source.poll(0))
    assert source._consumer.told == ["committed"]
    assert "lent to another worker" in capsys.readouterr().out


def test_a_batch_ends_at_half_of_its_lock(monkeypatch):
    now, halted = [100.0], []
    monkeypatch.setattr("eventstore.kafka.share_source.time.monotonic", lambda: now[0])
    source = share_source(Message())
    source._on_revoked = lambda: halted.append(now[0])
    source.poll(0)
    for now[0] in (100.0, 109.9, 110.1, 110.2):
        source.keep_alive()
    assert halted == [110.1]


def test_how_far_a_share_group_is_behind_is_refused():
    with pytest.raises(SubscriptionError, match="cannot be asked") as refused:
        share_source().lag()
    assert "kafka-share-groups.sh --describe --group desk" in refused.value.remedy
