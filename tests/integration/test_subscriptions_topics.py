"""Subscriptions to several topics of a real broker, to records that are put off, and at most once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa

from eventstore import RecordedEvent, open_subscriber, subscription
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.groups import group_offsets, read_topics, subscription_lag
from eventstore.topics import branch_topic
from tests.integration.delivering import deliver, running
from tests.integration.payments_topic import PaymentsTopic
from tests.ledger import LEDGER, Payment, amounts
from tests.waiting import wait_until


def test_several_topics_are_handled_kept_and_given_up_by_the_topic_of_the_record(settings, payments, engine):
    other = PaymentsTopic(settings)
    (one,) = payments.receive([1], partition=0)
    other.put([replace(one, topic=other.name)])
    other.receive([-2, 3], partition=0)

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        if event.amount < 0:
            raise ValueError("below zero")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    topics = [payments.name, other.name]
    declared = subscription(topics, group="ledger", attempts=1)(book)
    assert subscription_lag(settings, topics, group="ledger").records == 4
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        report = deliver(subscriber, records=4)
        wait_until(lambda: not subscriber.run_once(timeout=0.1).records and subscriber.lag().records == 0)
    assert (report.handled, report.duplicates, report.dead) == (3, 0, 1)
    assert sorted(amounts(engine)) == [1, 1, 3]
    assert [letter.partition for letter in read_range(settings, f"{other.name}.ledger.dead-letter")] == [0]
    assert not list(read_range(settings, f"{payments.name}.ledger.dead-letter"))


def test_a_topic_that_is_made_later_joins_a_pattern_and_what_a_group_has_for_itself_does_not(
    settings, payments, monkeypatch
):
    monkeypatch.setattr("eventstore.kafka.tails.DEADLINE_SECONDS", 0.2)
    seen: list[str] = []

    def note(event: RecordedEvent) -> None:
        seen.append(event.stream)

    payments.receive([1])
    ensure_topics(settings, [branch_topic(f"{payments.name}.books.dead-letter", partitions=1)])
    declared = subscription(pattern=rf"{payments.name}.*", group="audit")(note)
    subscriber = open_subscriber(declared, settings=settings)
    with running(subscriber):
        wait_until(lambda: len(seen) == 1)
        later = PaymentsTopic(settings, name=f"{payments.name}.suspicious")
        later.receive([2])
        wait_until(lambda: len(seen) == 2)
        assert {part.topic for part in subscriber.lag().partitions} == {payments.name, later.name}


def test_a_record_that_fails_is_handled_later_and_its_partition_does_not_wait(settings, payments, engine):
    failures = {2: 1, 4: 9}

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if failures.get(event.amount, 0) > 0:
            failures[event.amount] -= 1
            raise ValueError(f"no room for {event.amount}")

    payments.receive([1, 2, 3, 4, 5], partition=0)
    delays = [timedelta(milliseconds=1), timedelta(milliseconds=200)]
    declared = subscription(payments.name, group="books", retry=delays)(book)
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        report = deliver(subscriber, records=8)
        assert amounts(engine)[:3] == [1, 3, 5]
        wait_until(lambda: not subscriber.run_once(timeout=0.1).records and subscriber.lag().records == 0)
    assert (report.handled, report.postponed, report.dead, sorted(amounts(engine))) == (4, 3, 1, [1, 2, 3, 5])
    assert read_topics(settings, [payments.name], group="books") == [payments.name, declared.retry_topic]
    assert read_topics(settings, [payments.name], group="others") == [payments.name]
    (letter,) = [dict(letter.headers) for letter in read_range(settings, declared.dead_letter_topic)]
    told = {name: letter[f"dead_letter_{name}"].decode() for name in ("topic", "partition", "offset", "attempts")}
    assert told == {"topic": payments.name, "partition": "0", "offset": "3", "attempts": "3"}
    assert not [name for name in letter if name.startswith("retry_")]


def test_a_record_that_is_put_into_the_retry_topic_while_the_group_reads_is_handled_by_it_alone(
    settings, payments, engine, monkeypatch
):
    """As a replay of a dead letter to one group does."""
    monkeypatch.setattr("eventstore.kafka.tails.DEADLINE_SECONDS", 0.2)
    (one, *_) = payments.receive([1, 2], partition=0)
    fails = [True]

    def book(event: Payment.Received, tx: sa.Connection) -> None:
        if fails[0] and event.amount == 1:
            raise ValueError("not yet")
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))

    declared = subscription(payments.name, group="books", attempts=1, start="end")(book)
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        wait_until(lambda: not subscriber.run_once(timeout=0.1).records and subscriber.lag().records == 0)
        payments.put([one])
        assert deliver(subscriber, records=1).dead == 1
        fails[0] = False
        ensure_topics(settings, [branch_topic(declared.retry_topic, partitions=1)])
        payments.put([replace(one, topic=declared.retry_topic)] * 2)
        report = deliver(subscriber, records=3)
    assert (report.handled, report.duplicates, amounts(engine)) == (1, 1, [1])


def test_at_most_once_the_broker_knows_of_a_record_before_it_is_handled(settings, payments):
    payments.receive(range(5), partition=0)
    known: list[tuple[int, int]] = []

    def note(event: Payment.Received) -> None:
        known.append((event.amount, group_offsets(settings, payments.name, group="g")[0]))

    declared = subscription(payments.name, group="g", guarantee="at-most-once")(note)
    with open_subscriber(declared, settings=settings) as subscriber:
        deliver(subscriber, records=5)
    assert [amount for amount, _ in known] == [0, 1, 2, 3, 4]
    assert all(offset > amount for amount, offset in known)
