"""Queues on a real broker: more workers than partitions, workers that die, records that are given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from threading import Barrier

import pytest
import sqlalchemy as sa
from confluent_kafka import Producer

from eventstore import Delivery, open_subscriber, queue, subscription
from eventstore.errors import SubscriptionError
from eventstore.kafka.consumer import read_range
from tests.integration.booking import desk
from tests.integration.delivering import deliver, running
from tests.integration.payments_topic import PaymentsTopic
from tests.ledger import LEDGER, Payment, amounts
from tests.waiting import wait_until

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
