"""Subscriptions to several topics of a real broker, to records that are put off, and at most once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy as sa
from confluent_kafka import Producer

from eventstore import Delivery, RecordedEvent, open_subscriber, queue, subscription
from eventstore.errors import SubscriptionError
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.groups import group_offsets, read_topics, subscription_lag
from eventstore.topics import branch_topic
from tests.integration.booking import desk
from tests.integration.delivering import deliver, noting, running
from tests.integration.packed import send_packed
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
    assert read_topics(settings, [payments.name], group="books") == [
        payments.name,
        declared.retry_topic_of(payments.name),
    ]
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
        ensure_topics(settings, [branch_topic(declared.retry_topic_of(payments.name), partitions=1)])
        payments.put([replace(one, topic=declared.retry_topic_of(payments.name))] * 2)
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


# ---- Subscriptions and batches that their client cannot unpack: one dead letter names them, and nothing else is lost


def test_of_a_record_that_no_topic_takes_its_place_alone_is_kept(settings, payments):
    """Unpacked it is longer than any dead letter may be."""
    payments.receive([1], partition=0)
    send_packed(settings, payments.name, [b"a" * 40_000_000], codec="gzip")
    payments.receive([2], partition=0)
    seen: list[int] = []
    declared = noting(payments.name, group="g", into=seen)
    with open_subscriber(declared, settings=settings) as subscriber:
        report = deliver(subscriber, records=3)
    assert (report.handled, report.dead, seen) == (2, 1, [1, 2])
    (letter,) = read_range(settings, declared.dead_letter_topic)
    told = dict(letter.headers)
    assert (letter.value, told["dead_letter_omitted_bytes"], told["dead_letter_offset"]) == (None, b"40000000", b"1")


# ---- Queues on a real broker: more workers than partitions, workers that die, records that are given up


ROOT = Path(__file__).parents[2]


def test_more_workers_than_partitions_share_the_records_of_one(settings):
    """Each of three waits at its first record until all of them have one."""
    payments = PaymentsTopic(settings, partitions=1)
    seen: dict[str, list[int]] = {name: [] for name in "abc"}
    all_at_work = Barrier(3)

    def worker(into: list[int]):
        def note(event: Payment.Received) -> None:
            if not into:
                all_at_work.wait(15)
            into.append(event.amount)

        return open_subscriber(queue(payments.name, group=f"desk-{payments.name}", batch=5)(note), settings=settings)

    for amount in range(30):
        payments.receive([amount], partition=0)  # by itself: a broker lends a producer's batch as a whole
    with ExitStack() as stack:
        for into in seen.values():
            stack.enter_context(running(worker(into)))
        wait_until(lambda: sum(map(len, seen.values())) == 30)
    assert all(seen.values())
    assert sorted(chain(*seen.values())) == list(range(30))


def test_records_are_tried_again_and_given_up_with_their_count_and_aborted_ones_are_not_read(
    settings, payments, engine
):
    aborted = Producer({**settings.kafka.librdkafka_producer(), "log_level": 0, "transactional.id": payments.name})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    record = payments.record(Payment.Received(amount=99), partition=0)
    aborted.produce(record.topic, record.value, record.key, partition=0, headers=list(record.headers))
    aborted.flush(30)
    aborted.abort_transaction(30)
    payments.receive([1, 2, 3, 4], partition=0)
    counts = []

    def book(event: Payment.Received, delivery: Delivery, tx: sa.Connection) -> None:
        tx.execute(sa.insert(LEDGER).values(amount=event.amount))
        if event.amount == 2:
            counts.append(delivery.count)
            raise ValueError("two fails")
        if event.amount == 3 and delivery.count == 1:
            delivery.release()
        if event.amount == 4:
            delivery.reject("four is refused")

    declared = queue(payments.name, group=f"desk-{payments.name}", deliveries=3)(book)
    with open_subscriber(declared, settings=settings, engine=engine) as subscriber:
        report = deliver(subscriber, records=7)
        assert not subscriber.run_once(timeout=1).records
    assert (report.handled, report.postponed, report.dead) == (2, 3, 2)
    assert (sorted(amounts(engine)), counts) == ([1, 3], [1, 2, 3])
    letters = [dict(letter.headers) for letter in read_range(settings, declared.dead_letter_topic)]
    told = {(one["dead_letter_error"], one["dead_letter_attempts"], one["dead_letter_offset"]) for one in letters}
    assert {(error, attempts) for error, attempts, _ in told} == {(b"ValueError", b"3"), (b"Rejected", b"1")}


def test_a_worker_that_is_killed_leaves_its_records_to_another_and_each_is_booked_once(settings, engine):
    """Of one partition, which all workers share: another one would be the dead worker's until its session ends."""
    payments = PaymentsTopic(settings, partitions=1)
    for amount in range(0, 30, 10):
        payments.receive(range(amount, amount + 10), partition=0)
    environment = os.environ | {
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
        "FACTFOLD_TEST_TOPIC": payments.name,
        "FACTFOLD_TEST_KILL": "2",
    }
    url = engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "factfold", "subscriptions", "run", "tests.integration.booking:work"]
    killed = subprocess.Popen([*command, "--inbox-url", url], env=environment, cwd=ROOT)
    assert killed.wait(60) == -signal.SIGKILL
    before = sorted(amounts(engine))
    assert len(before) == 20  # the second batch is committed, and the broker has not heard of it

    with open_subscriber(desk(payments.name), settings=settings, engine=engine) as other:
        report = deliver(other, records=20)
    assert (report.handled, report.duplicates) == (10, 10)
    assert sorted(amounts(engine)) == list(range(30))


def test_a_group_of_a_subscription_is_no_group_of_a_queue(settings, payments):
    def note(event: Payment.Received) -> None: ...

    payments.receive([1])
    with open_subscriber(subscription(payments.name, group=payments.name)(note), settings=settings) as subscriber:
        deliver(subscriber, records=1)
    with pytest.raises(SubscriptionError, match="is a consumer group") as refused:
        open_subscriber(queue(payments.name, group=payments.name)(note), settings=settings)
    assert f"--delete --group {payments.name}" in refused.value.remedy
