"""`factfold watch`: what it shows of a store without servers, and the files it writes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventstore import ANY, NewEvent, Subscriber, subscription
from eventstore.backends.sql.source import StoreSource
from eventstore.processes.administration import Processes
from eventstore.store import FenceStatus
from factfold.watching.metrics import Letters, WatchMetrics, _topic_and_group, look_at_store
from tests.commands import factfold
from tests.conformance.process_shop import Reminder, Shop
from tests.ledger import Payment
from tests.scraping import scraped
from tests.waiting import wait_until


@pytest.fixture
def metrics():
    return WatchMetrics()


def sampled(metrics, family, **labels):
    return metrics.registry.get_sample_value(f"factfold_{family}", labels)


def test_the_newest_event_of_each_category_is_shown_with_its_topic(store, metrics):
    store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    look_at_store(metrics, store)
    name = store.engine.url.database
    (event,) = store.read_stream("payment-1")
    found = sampled(metrics, "store_newest_event_timestamp_seconds", store=name, category="payment", topic="payment")
    assert found == pytest.approx(event.time.timestamp())


def test_an_open_fence_has_no_age_where_nobody_writes(store, metrics):
    look_at_store(metrics, store)
    name = store.engine.url.database
    assert sampled(metrics, "store_fence_age_seconds", store=name) == 0
    assert sampled(metrics, "store_fence_events", store=name) == 0


def test_a_fence_that_is_held_has_an_age_and_hides_events(store, metrics, monkeypatch):
    monkeypatch.setattr(store, "fence", lambda: FenceStatus(3, 2.5, "slow import"))
    look_at_store(metrics, store)
    name = store.engine.url.database
    assert sampled(metrics, "store_fence_age_seconds", store=name) == 2.5
    assert sampled(metrics, "store_fence_events", store=name) == 3


def test_what_is_overdue_grows_and_what_failed_too_often_is_counted(store, metrics):
    shop, name = Shop(store, Reminder), store.engine.url.database
    shop.now = datetime.now(UTC) - timedelta(minutes=5)
    shop.place("o1")
    shop.deliver()
    shop.insert_timer("o1", "remind")
    look_at_store(metrics, store)
    assert sampled(metrics, "scheduled_overdue_seconds", store=name) == pytest.approx(300, abs=30)
    assert sampled(metrics, "process_instances", store=name, process="reminder", status="running") == 1
    assert sampled(metrics, "process_troubled_instances", store=name, process="reminder") == 0
    assert sampled(metrics, "scheduled_set_aside", store=name) == 0


def test_a_problem_of_an_instance_is_counted(store, metrics):
    shop, name = Shop(store, Reminder), store.engine.url.database
    shop.place("o1")
    shop.deliver()
    with store.engine.begin() as tx:
        tx.execute(sa.text("UPDATE factfold_processes SET problem = 'no room'"))
    look_at_store(metrics, store)
    assert Processes(store).stats()[0].troubled == 1
    assert sampled(metrics, "process_troubled_instances", store=name, process="reminder") == 1


def test_dead_letters_of_a_store_are_shown_until_they_are_settled(store, metrics):
    @subscription("payment", group="books", attempts=1)
    def fails(event: Payment.Received, tx: sa.Connection) -> None:
        raise ValueError("no room")

    store.append("payment-1", [NewEvent(Payment.Received(amount=1))], expected=ANY)
    with Subscriber(fails, StoreSource(store, fails, category="payment"), engine=store.engine) as subscriber:
        subscriber.run_once(timeout=0)
    labels = {"home": store.engine.url.database, "topic": "payment", "group": "books"}
    Letters(None, store).look(metrics)
    assert sampled(metrics, "dead_letters_open", **labels) == 1
    discarded = factfold("dlq", "discard", "payment", "books", "--inbox-url", str(store.engine.url), "--all", "--yes")
    assert discarded.exit_code == 0, discarded.output
    Letters(None, store).look(metrics)
    assert sampled(metrics, "dead_letters_open", **labels) is None


@pytest.mark.parametrize(
    ("home", "topic", "group"),
    [
        ("shop.order.dead-letter", "shop.order", ""),
        ("shop.order.books.dead-letter", "shop.order", "books"),
        ("shop.order.books.v2.dead-letter", "shop.order", "books.v2"),
        ("payment.dead-letter", "payment", ""),
        ("payment.books.dead-letter", "payment", "books"),
        ("deleted.books.dead-letter", "deleted", "books"),
        ("deleted.dead-letter", "deleted", ""),
    ],
)
def test_the_topic_of_dead_letters_is_one_that_exists(home, topic, group):
    topics = {"shop.order", "shop.orders", "payment", home, f"{home}.settled"}
    assert _topic_and_group(home, topics) == (topic, group)


def test_the_files_for_prometheus_and_grafana_are_written(tmp_path):
    folder = tmp_path / "new" / "watching"
    done = factfold("watch", "export", str(folder), "--json")
    written = [Path(file) for file in json.loads(done.output)["files"]]
    assert [file.name for file in written] == ["factfold-alerts.yaml", "factfold-dashboard.json"]
    assert all(file.read_text(encoding="utf-8") for file in written)


def test_the_command_watches_until_it_is_stopped(store):
    store.append("payment-1", [Payment.Received(amount=1)], expected=ANY)
    name = store.engine.url.database
    arguments = ["watch", "run", "--store-url", str(store.engine.url), "--metrics-port", "0", "--json"]
    with subprocess.Popen([sys.executable, "-m", "factfold", *arguments], stdout=subprocess.PIPE) as watch:
        try:
            told = json.loads(watch.stdout.readline())
            shown = ("factfold_store_newest_event_timestamp_seconds", "payment", name, "payment")
            wait_until(lambda: shown in scraped(told["port"]), what=lambda: f"{shown} in {scraped(told['port'])}")
            assert scraped(told["port"])["factfold_runner_look_failures_total", "watch", "watch"] == 0
        finally:
            watch.send_signal(signal.SIGTERM)
        assert watch.wait(30) == 0


def test_nothing_to_watch_is_refused():
    done = factfold("watch", "run", "--no-kafka")
    assert done.exit_code == 2
    assert "--store-url" in done.output
