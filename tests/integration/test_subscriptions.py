"""Subscriptions on a real broker and a real PostgreSQL: killed, shared, begun anywhere, moved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from confluent_kafka import Producer

from eventstore import RecordedEvent, Settings, Subscriber, open_subscriber, run_subscription, subscription
from eventstore.errors import KafkaError
from eventstore.kafka.admin import end_offsets
from eventstore.kafka.groups import group_offsets, require_group, reset_group, subscription_lag
from eventstore.metrics import SubscriptionMetrics
from tests.commands import factfold
from tests.errors import raises
from tests.integration.delivering import booking, deliver, noting, running
from tests.integration.payments_topic import PaymentsTopic
from tests.ledger import Payment, amounts
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def test_events_are_handled_in_order_with_their_metadata(settings, payments):
    seen = []

    def note(event: Payment.Received, why: RecordedEvent) -> None:
        seen.append((event.amount, why.stream, why.caused().causation_id == str(why.id)))

    payments.receive([1, 2, 3], partition=2)
    with open_subscriber(subscription(payments.name, group="g")(note), settings=settings) as subscriber:
        report = deliver(subscriber, records=3)
    assert seen == [(1, "payment-1", True), (2, "payment-2", True), (3, "payment-3", True)]
    assert report.handled == 3


@contextmanager
def booked(payments: PaymentsTopic, engine: sa.Engine, **kill: str) -> Iterator[subprocess.Popen[bytes]]:
    """`factfold subscriptions run` in a process of its own."""
    # A member that says who it is takes its partitions back at once. Others wait for the dead one's session.
    environment = os.environ | {
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": payments.settings.kafka.bootstrap_servers,
        "FACTFOLD_KAFKA__EXTRA_LIBRDKAFKA": json.dumps({"group.instance.id": "the-one"}),
        "FACTFOLD_TEST_TOPIC": payments.name,
    }
    command = [sys.executable, "-m", "factfold", "subscriptions", "run", "tests.integration.booking:book", "--json"]
    url = engine.url.render_as_string(hide_password=False)
    with subprocess.Popen([*command, "--inbox-url", url], env=environment | kill, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_subscriber_killed_twice_handles_every_event_exactly_once(payments, engine):
    """Without the inbox it repeats events: see faults/test_branches_killed."""
    payments.receive(range(300))
    for kill in "21":
        with booked(payments, engine, FACTFOLD_TEST_KILL=kill) as killed:
            assert killed.wait(60) == -signal.SIGKILL
    with booked(payments, engine) as last:
        group = f"books-of-{payments.name}"
        wait_until(lambda: subscription_lag(payments.settings, [payments.name], group=group).records == 0)
        last.terminate()
        assert last.wait(60) == 0
    assert sorted(amounts(engine)) == list(range(300))


def test_members_share_the_partitions_and_one_that_joins_causes_no_double_work(settings, payments):
    """At least once, without an inbox: what is seen twice was worked on twice."""
    seen: dict[str, list[int]] = {name: [] for name in "abc"}

    def member(name: str) -> Subscriber:
        declared = noting(payments.name, group="shared", into=seen[name], batch=20)
        return open_subscriber(declared, settings=settings)

    sent, enough = [0], threading.Event()

    def traffic() -> None:
        while not enough.is_set():
            payments.receive(range(sent[0], sent[0] + 20))
            sent[0] += 20

    with ExitStack() as stack:
        stack.enter_context(running(member("a")))
        stack.enter_context(running(member("b")))
        writer = threading.Thread(target=traffic)
        writer.start()
        try:
            wait_until(lambda: seen["a"] and seen["b"])
            stack.enter_context(running(member("c")))
            wait_until(lambda: seen["c"])
            begun = {name: len(amounts) for name, amounts in seen.items()}
            wait_until(lambda: all(len(seen[name]) > begun[name] for name in seen))
        finally:
            enough.set()
            writer.join(30)
        wait_until(lambda: sum(map(len, seen.values())) >= sent[0])
    assert sorted(seen["a"] + seen["b"] + seen["c"]) == list(range(sent[0]))


def test_a_member_that_joins_does_not_wait_for_a_long_batch_and_nothing_of_it_is_repeated(settings, payments):
    """The first has a minute's work at hand when the second asks for its share, and is slow until it has got it."""
    first, second = [], []

    def slow(event: Payment.Received) -> None:
        first.append(event.amount)
        if not second:
            time.sleep(0.1)

    def note(event: Payment.Received) -> None:
        second.append(event.amount)
        if len(second) == 1:
            done_by_first.append(len(first))

    done_by_first: list[int] = []
    payments.receive(range(600))
    with running(open_subscriber(subscription(payments.name, group="shared")(slow), settings=settings)):
        wait_until(lambda: first)
        with running(open_subscriber(subscription(payments.name, group="shared")(note), settings=settings)):
            wait_until(lambda: second)
            wait_until(lambda: len(first) + len(second) >= 600)
            wait_until(lambda: subscription_lag(settings, [payments.name], group="shared").records == 0)
    assert done_by_first[0] < 400
    assert sorted(first + second) == list(range(600))


def test_a_new_group_begins_where_its_subscription_starts(settings, payments):
    payments.receive([0, 1, 2], partition=1)
    time.sleep(0.05)  # timestamps of records count milliseconds
    moment = datetime.now(UTC)
    payments.receive([3, 4], partition=1)
    expected = {"beginning": [0, 1, 2, 3, 4], "end": [], moment: [3, 4]}
    opened = []
    for start in [*expected, {1: 2}]:
        seen: list[int] = []
        subscriber = open_subscriber(
            noting(payments.name, group=uuid.uuid4().hex, into=seen, start=start), settings=settings
        )
        deliver(subscriber, records=3 if isinstance(start, dict) else len(expected[start]))
        wait_until(lambda s=subscriber: s.run_once(timeout=0.1).records == 0 and s.lag().records == 0)
        opened.append((subscriber, seen, [2, 3, 4] if isinstance(start, dict) else expected[start]))
    payments.receive([5], partition=1)
    for subscriber, seen, before in opened:
        deliver(subscriber, records=len(before) + 1)
        subscriber.close()
        assert seen == [*before, 5]


def test_a_group_that_started_at_the_end_does_not_start_there_again(settings, payments):
    """Nothing was handled, and nothing committed by a handler, when the first member went."""
    first: list[int] = []
    declared = noting(payments.name, group="g", into=first, start="end")
    payments.receive([0], partition=0)
    with open_subscriber(declared, settings=settings) as subscriber:
        wait_until(lambda: not subscriber.run_once(timeout=0.1).records and _has_place(settings, payments))
    payments.receive([1], partition=0)
    with open_subscriber(declared, settings=settings) as subscriber:
        deliver(subscriber, records=1)
    assert first == [1]


def test_members_that_start_together_at_the_end_share_what_comes_after_it(settings, payments):
    seen: dict[str, list[int]] = {"a": [], "b": []}
    payments.receive(range(20))
    with ExitStack() as stack:
        for into in seen.values():
            declared = noting(payments.name, group="g", into=into, start="end")
            stack.enter_context(running(open_subscriber(declared, settings=settings)))
        wait_until(lambda: _has_place(settings, payments))
        sent = 20
        while not all(seen.values()):  # while the group still moves partitions about, too
            payments.receive(range(sent, sent + 20))
            sent += 20
            wait_until(lambda expected=sent - 20: sum(map(len, seen.values())) >= expected)
    assert sorted(seen["a"] + seen["b"]) == list(range(20, sent))


def _has_place(settings: Settings, payments: PaymentsTopic) -> bool:
    return len(group_offsets(settings, payments.name, group="g")) == 4


def test_lag_counts_committed_records_that_wait_and_ends_at_nothing(settings, payments):
    transactional = Producer(
        {**settings.kafka.librdkafka_producer(), "log_level": 0, "transactional.id": uuid.uuid4().hex}
    )
    transactional.init_transactions(30)
    transactional.begin_transaction()
    for amount in range(6):
        record = payments.record(Payment.Received(amount=amount), partition=0)
        transactional.produce(record.topic, record.value, record.key, partition=0, headers=list(record.headers))
    transactional.commit_transaction(30)
    wait_until(lambda: end_offsets(settings, [payments.name])[payments.name][0] == 7)
    assert subscription_lag(settings, [payments.name], group="g").records == 7
    assert subscription_lag(settings, [payments.name], group="g").seconds > 0
    with open_subscriber(noting(payments.name, group="g", into=[], batch=2), settings=settings) as subscriber:
        deliver(subscriber, records=4)
        wait_until(lambda: not subscriber.run_once(timeout=0.1).records and subscriber.lag().records == 0)
        assert subscriber.lag().seconds == 0


def test_a_group_is_moved_while_it_is_empty_and_only_then(settings, payments, engine):
    payments.receive(range(4), partition=0)
    with open_subscriber(booking(payments.name), settings=settings, engine=engine) as subscriber:
        deliver(subscriber, records=4)
        with raises(KafkaError, code="group-active", match="1 members"):
            reset_group(settings, payments.name, group="books", to="beginning")
    reset_group(settings, payments.name, group="books", to={0: 2})
    with open_subscriber(booking(payments.name), settings=settings, engine=engine) as subscriber:
        assert deliver(subscriber, records=2).duplicates == 2
    assert amounts(engine) == [0, 1, 2, 3]


def test_groups_are_listed_with_their_lag_and_an_unknown_one_is_an_error(settings, payments, monkeypatch):
    payments.receive(range(6), partition=0)
    group = f"counted-{uuid.uuid4().hex}"
    with open_subscriber(noting(payments.name, group=group, into=[], batch=2), settings=settings) as subscriber:
        deliver(subscriber, records=2)
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)
    listed = json.loads(factfold("subscriptions", "list", "--json").stdout)
    (found,) = [one for one in listed if one["group"] == group]
    behind = subscription_lag(settings, [payments.name], group=group)
    assert (found["topics"], found["records"], found["members"]) == ([payments.name], behind.records, 0)
    assert 0 < behind.records < 6
    assert found["seconds"] > 0
    mistyped = f"{group}s"
    with raises(KafkaError, code="group-unknown") as unknown:
        require_group(settings, mistyped)
    assert (repr(mistyped) in unknown.value.message, repr(group) in unknown.value.remedy) == (True, True)


def test_the_command_moves_a_group_forgets_its_inbox_and_shows_its_lag(settings, payments, engine, monkeypatch):
    payments.receive(range(4), partition=0)
    stop, handled = threading.Event(), []

    def until_four(report) -> None:
        handled.append(report.handled)
        if sum(handled) == 4:
            stop.set()

    metrics = SubscriptionMetrics("books")
    sides = {"settings": settings, "engine": engine, "metrics": metrics}
    run_subscription(booking(payments.name), stop=stop, on_batch=until_four, **sides)
    counted = {"records_total": {"group": "books", "outcome": "handled"}, "handler_seconds_count": {"group": "books"}}
    for family, labels in counted.items():
        assert metrics.registry.get_sample_value(f"factfold_subscription_{family}", labels) == 4
    monkeypatch.setenv("FACTFOLD_KAFKA__BOOTSTRAP_SERVERS", settings.kafka.bootstrap_servers)
    url = engine.url.render_as_string(hide_password=False)
    group = (payments.name, "books")
    moved = factfold("subscriptions", "reset", *group, "--to", "0=1", "--forget", "--inbox-url", url)
    assert "4 events forgotten" in moved.stdout
    assert json.loads(factfold("subscriptions", "lag", *group, "--json").stdout)["records"] == 3
    with open_subscriber(booking(payments.name), settings=settings, engine=engine) as subscriber:
        assert deliver(subscriber, records=3).handled == 3
    assert amounts(engine) == [0, 1, 2, 3, 1, 2, 3]
