"""Metrics of the event store's runners, read back as Prometheus' own client exposes them."""

from __future__ import annotations

import threading
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eventstore import Restarts
from eventstore.backends.sql.outbox import Waiting
from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.source import Lag, PartitionLag
from eventstore.errors import BrokerUnreachable, DeclarationError, FactfoldError
from eventstore.metrics import ProcessMetrics, RelayMetrics, SubscriptionMetrics, serve_metrics
from eventstore.metrics.families import RESTARTS, Family, Kind, Metrics
from eventstore.metrics.serving import refreshing
from eventstore.relay import RelayReport, RelayStatus
from eventstore.restarts import Outwaiting
from tests.errors import raises
from tests.rows import each_row
from tests.unit.eventstore.handlers import booking, deliver
from tests.unit.eventstore.memory_source import MemorySource, arrivals


def sampled(metrics, family, **labels):
    return metrics.registry.get_sample_value(family, labels)


def scraped(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    return {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}


def test_a_runner_says_what_it_is_and_what_its_process_uses_however_often_it_is_served():
    metrics = SubscriptionMetrics("fraud")
    for _ in range(2):
        with serve_metrics(metrics, port=0) as port:
            names = scraped(port)
        assert {"factfold_runner_info", "process_resident_memory_bytes", "process_cpu_seconds_total"} <= names


def test_a_port_that_is_taken_is_refused_with_a_remedy():
    metrics = SubscriptionMetrics("fraud")
    with serve_metrics(metrics, port=0) as port:
        with (
            raises(FactfoldError, code="port-taken", match="cannot be served") as refused,
            serve_metrics(metrics, port=port),
        ):
            pass
        assert "--metrics-port" in refused.value.remedy


def test_batches_and_lag_of_a_subscription_are_shown_before_they_happen_and_add_up():
    metrics = SubscriptionMetrics("fraud")
    records = "factfold_subscription_records_total"
    for outcome in ("handled", "duplicates", "skipped", "retried", "dead", "postponed"):
        assert sampled(metrics, records, group="fraud", outcome=outcome) == 0
    for _ in range(2):
        metrics.delivered(DeliveryReport(handled=3, dead=1))
    assert [sampled(metrics, records, group="fraud", outcome=outcome) for outcome in ("handled", "dead")] == [6, 2]
    metrics.behind(Lag((PartitionLag(0, 3, 1.5, "a"), PartitionLag(1, 4, 9.0, "a"), PartitionLag(0, 1, 0.5, "b"))))
    of_topics = {topic: [sampled(metrics, f"factfold_subscription_lag_{what}", group="fraud", topic=topic)
                         for what in ("records", "seconds")] for topic in "ab"}  # fmt: skip
    assert of_topics == {"a": [7, 9.0], "b": [1, 0.5]}


def test_failures_in_a_row_end_with_a_recovery():
    metrics = SubscriptionMetrics("fraud")
    policy = Restarts(limit=3, first=0.0, longest=0.0)
    outwaiting = Outwaiting(policy, what="x", place="y", gave_up=BrokerUnreachable, counted_by=metrics)
    for _ in range(2):
        outwaiting.failed(BrokerUnreachable("away", remedy="wait"))
    labels = {"runner": "subscriptions", "name": "fraud"}
    assert sampled(metrics, "factfold_runner_failures_in_a_row", **labels) == 2
    outwaiting.recovered()
    assert sampled(metrics, "factfold_runner_failures_in_a_row", **labels) == 0
    assert sampled(metrics, "factfold_runner_restarts_total", **labels) == 2


def test_a_relay_counts_up_to_the_totals_of_its_reports_and_shows_what_a_topic_lacks_with_its_age():
    metrics = RelayMetrics()
    for report in (RelayReport(5, 1, 1), RelayReport(9, 1, 2)):
        metrics.published(report)
    totals = [sampled(metrics, f"factfold_relay_{what}_total") for what in ("events", "schemas")]
    assert totals == [9, 1]
    for state, leads in (("standing by", 0), ("leading", 1)):
        metrics.state(state)
        assert sampled(metrics, "factfold_relay_is_leader") == leads
    waiting = Waiting("order", "shop.order", 3, datetime.now(UTC) - timedelta(seconds=60))
    metrics.behind(RelayStatus("pid 7", (waiting, Waiting("item", "shop.item", 0, None))))
    assert sampled(metrics, "factfold_relay_lag_events", topic="shop.order") == 3
    assert sampled(metrics, "factfold_relay_lag_seconds", topic="shop.order") == pytest.approx(60, abs=5)
    assert sampled(metrics, "factfold_relay_lag_seconds", topic="shop.item") == 0


def test_events_of_processes_are_counted_by_process():
    metrics = ProcessMetrics("fulfilment")
    metrics.delivered("fulfilment", DeliveryReport(handled=2))
    assert sampled(metrics, "factfold_process_events_total", process="fulfilment", outcome="handled") == 2


def test_a_look_that_fails_is_counted_and_the_next_one_is_made():
    metrics, done = SubscriptionMetrics("fraud"), threading.Event()
    looks = iter([BrokerUnreachable("away", remedy="wait"), None])

    def look():
        error = next(looks, None)
        if error is not None:
            raise error
        done.set()

    with refreshing(metrics, look, every=0.01):
        assert done.wait(10)
    labels = {"runner": "subscriptions", "name": "fraud"}
    assert sampled(metrics, "factfold_runner_look_failures_total", **labels) == 1


def test_values_that_are_replaced_leave_nothing_behind():
    family = Family("factfold_test_rows", Kind.GAUGE, "Rows.", ("table",))

    class TableMetrics(Metrics):
        families = (family,)

    metrics = TableMetrics()
    metrics.replace(family, [({"table": "a"}, 1), ({"table": "b"}, 2)])
    metrics.replace(family, [({"table": "b"}, 3)])
    assert sampled(metrics, "factfold_test_rows", table="a") is None
    assert sampled(metrics, "factfold_test_rows", table="b") == 3


def test_each_call_of_a_handler_is_timed_also_one_that_fails(engine):
    metrics = SubscriptionMetrics("books")
    declared = booking(fails_on=[2], attempts=2)
    report = deliver(declared, MemorySource(arrivals(1, 2, 3)), engine, around=[metrics.timed])
    assert (report.handled, report.dead) == (2, 1)
    # The whole batch up to 2, again what came before it, 2 alone, and the rest.
    assert sampled(metrics, "factfold_subscription_handler_seconds_count", group="books") == 5


def test_what_stands_around_a_call_knows_its_records_and_sees_its_failure(engine):
    seen = []

    @contextmanager
    def around(call):
        amounts = [event.data["amount"] for event in call.events]
        try:
            yield
        except ValueError as error:
            seen.append((amounts, str(error)))
            raise
        seen.append((call.subscription.group, call.topic, amounts))

    deliver(booking(fails_on=[2], attempts=1), MemorySource(arrivals(1, 2)), engine, around=[around])
    assert seen == [
        ("books", "payments", [1]),
        ([2], "no room for 2"),
        ("books", "payments", [1]),
    ]


@each_row("change", ["set", "count", "observe"])
def test_a_family_that_is_not_declared_or_of_another_kind_is_named(change):
    family = Family("factfold_open_reviews", Kind.GAUGE, "Reviews that wait.", ())
    with pytest.raises(DeclarationError, match="ProcessMetrics has no factfold_open_reviews"):
        getattr(ProcessMetrics("reviews"), change)(family, 1)
    with pytest.raises(DeclarationError, match="SubscriptionMetrics has no factfold_runner_restarts_total"):
        SubscriptionMetrics("books").set(RESTARTS, 1)
