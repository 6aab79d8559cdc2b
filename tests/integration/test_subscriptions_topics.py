"""Subscriptions to several topics of a real broker: by name, and by a pattern that new topics match."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from eventstore import RecordedEvent, open_subscriber, subscription
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.groups import subscription_lag
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
    monkeypatch.setattr("eventstore.kafka.following.DEADLINE_SECONDS", 0.2)
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
