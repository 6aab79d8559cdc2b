"""Metrics of the event store's runners, read back as Prometheus' own client exposes them."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.parser import text_string_to_metric_families

from eventstore import (
    AsyncDispatcher,
    AsyncSqlEventStore,
    AsyncSubscriber,
    Dispatcher,
    MemoryEventStore,
    Metadata,
    RecordedEvent,
    Restarts,
    Subscriber,
    subscription,
)
from eventstore.aggregates.dispatcher import required
from eventstore.backends.sql.outbox import Waiting
from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.source import Lag, PartitionLag
from eventstore.errors import BrokerUnreachable, DeclarationError, FactfoldError, NotFramedAvro
from eventstore.metrics import ProcessMetrics, RelayMetrics, SubscriptionMetrics, serve_metrics
from eventstore.metrics.families import RESTARTS, Family, Kind, Metrics, refreshing
from eventstore.processes.running import run_processes
from eventstore.relay import RelayReport, RelayStatus
from eventstore.restarts import Outwaiting
from eventstore.spans import Spans
from sample_app.background import Background
from tests.errors import raises
from tests.ledger import Payment
from tests.rows import each_row
from tests.spans import Recorder
from tests.unit.eventstore.counter import Counter
from tests.unit.eventstore.fulfilment import Fulfilment, Order
from tests.unit.eventstore.handlers import booking, deliver, deliver_stored
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource, arrivals, recorded
from tests.waiting import wait_until


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


# ---- Spans: a command, its events, the reactions to them and the commands these send are one trace


TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def recorder():
    found = Recorder()
    yield found
    found.provider.shutdown()


def traced_dispatcher(store, recorder, *more):
    return Dispatcher(store, middleware=[recorder.spans.command, *more])


def printing(dispatcher):
    @subscription("counter", group="receipts", attempts=1)
    def print_receipt(event: Counter.Counted, recorded: RecordedEvent, tx: sa.Connection) -> None:
        order = recorded.stream
        dispatcher.within(tx).with_metadata(recorded.caused()).send("r1", Order.ship, carrier=order)

    return print_receipt


def deliver_traced(store, declared, recorder):
    return deliver_stored(store, declared, category="counter", around=[recorder.spans.handling])


def test_command_event_reaction_and_next_command_are_one_trace(store, recorder):
    dispatcher = traced_dispatcher(store, recorder)
    dispatcher.send("a", Counter.add, 1)
    assert deliver_traced(store, printing(dispatcher), recorder).handled == 1
    assert recorder.tree() == ["counter.add", "  process counter", "    order.ship"]
    assert len(recorder.traces()) == 1
    (printed,) = store.read_stream("order-r1")
    assert printed.metadata.traceparent.split("-")[1:3] == [
        *recorder.traces(), f"{recorder.ended[-1].context.span_id:016x}",
    ]  # fmt: skip


def test_the_span_of_a_handler_says_what_was_handled_by_whom(store, recorder):
    dispatcher = traced_dispatcher(store, recorder)
    dispatcher.send("a", Counter.add, 1)
    deliver_traced(store, printing(dispatcher), recorder)
    (counted,) = store.read_stream("counter-a")
    handled = recorder.ended[1]
    assert handled.kind is SpanKind.CONSUMER
    assert {name: handled.attributes[name] for name in handled.attributes if name.startswith("messaging")} == {
        "messaging.system": "factfold",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "counter",
        "messaging.consumer.group.name": "receipts",
        "messaging.message.id": str(counted.id),
    }


def test_a_command_whose_metadata_names_a_span_is_its_child(recorder):
    store = MemoryEventStore()
    traced_dispatcher(store, recorder).with_metadata(Metadata(traceparent=PARENT)).send("a", Counter.add, 1)
    (span,) = recorder.ended
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, "b7ad6b7169203331")


def test_the_current_span_is_the_parent_and_that_of_the_metadata_is_linked(recorder):
    dispatcher = traced_dispatcher(MemoryEventStore(), recorder).with_metadata(Metadata(traceparent=PARENT))
    with recorder.provider.get_tracer("web").start_as_current_span("POST /orders"):
        dispatcher.send("a", Counter.add, 1)
    span = recorder.ended[-1]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [TRACE]
    assert recorder.tree() == ["POST /orders", "  counter.add"]


def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(recorder):
    store = MemoryEventStore()
    traced_dispatcher(store, recorder).with_metadata(Metadata(traceparent="none of W3C's")).send("a", Counter.add, 1)
    (span,) = recorder.ended
    assert span.parent is None
    (counted,) = store.read_stream("counter-a")
    assert counted.metadata.traceparent.split("-")[1] == f"{span.context.trace_id:032x}"


def test_without_an_sdk_a_trace_that_arrives_is_passed_on():
    store = MemoryEventStore()
    dispatcher = Dispatcher(store, middleware=[Spans().command])
    dispatcher.with_metadata(Metadata(traceparent=PARENT)).send("a", Counter.add, 1)
    dispatcher.send("b", Counter.add, 1)
    assert [e.metadata.traceparent for e in (*store.read_stream("counter-a"), *store.read_stream("counter-b"))] == [
        PARENT, None,
    ]  # fmt: skip


def test_a_refusal_is_an_outcome_and_no_error(recorder):
    dispatcher = traced_dispatcher(MemoryEventStore(), recorder, required(lambda command: "not on a Sunday"))
    dispatcher.send("a", Counter.add, 1)
    (span,) = recorder.ended
    assert span.attributes["factfold.command.outcome"] == "refused"
    assert span.status.status_code is StatusCode.UNSET


def test_of_an_error_only_the_class_is_recorded(store, recorder):
    @subscription("counter", group="receipts", attempts=1)
    def fails(event: Counter.Counted, tx: sa.Connection) -> None:
        raise ValueError("ann@example.org is not known")

    traced_dispatcher(store, recorder).send("a", Counter.add, 1)
    assert deliver_traced(store, fails, recorder).dead == 1
    span = recorder.ended[-1]
    assert (span.attributes["error.type"], span.status.status_code) == ("ValueError", StatusCode.ERROR)
    assert "ann@example.org" not in span.to_json()


def test_a_batch_of_several_traces_is_linked_to_each(store, recorder):
    for number, parent in enumerate((PARENT, OTHER, None)):
        Dispatcher(store).with_metadata(Metadata(traceparent=parent)).send(f"c{number}", Counter.add, 1)

    @subscription("counter", group="sums")
    def take(events: list[Counter.Counted], tx: sa.Connection) -> None: ...

    assert deliver_traced(store, take, recorder).handled == 3
    (span,) = recorder.ended
    assert span.parent is None
    assert sorted(f"{link.context.trace_id:032x}" for link in span.links) == sorted(
        one.split("-")[1] for one in (PARENT, OTHER)
    )
    assert span.attributes["messaging.batch.message_count"] == 3


def test_a_batch_of_one_trace_goes_on_with_it(store, recorder):
    for number in range(2):
        Dispatcher(store).with_metadata(Metadata(traceparent=PARENT)).send(f"c{number}", Counter.add, 1)

    @subscription("counter", group="sums")
    def take(events: list[Counter.Counted], tx: sa.Connection) -> None: ...

    deliver_traced(store, take, recorder)
    assert recorder.traces() == {TRACE}


def test_a_runner_of_processes_traces_and_counts_what_it_does(store, recorder):
    traced_dispatcher(store, recorder).send("o1", Order.place, sku="tea", quantity=1, amount=Decimal(9))
    metrics = ProcessMetrics("fulfilment")
    with Background(
        lambda stop: run_processes(store, [Fulfilment], stop=stop, metrics=metrics, spans=recorder.spans), name="p"
    ).running():
        wait_until(lambda: len(list(store.read_stream("order-o1"))) == 2, what=lambda: "the cancelled order")
    assert recorder.tree()[:5] == [
        "order.place",
        "  process fulfilment",
        "    item.reserve",
        "    process fulfilment",
        "      order.cancel",
    ]
    assert len(recorder.traces()) == 1
    shown = metrics.registry.get_sample_value
    assert shown("factfold_process_commands_total") == 2
    assert shown("factfold_process_events_total", {"process": "fulfilment", "outcome": "handled"}) >= 1
    assert shown("factfold_process_overdue_seconds") < 60


def test_a_record_without_the_headers_of_an_event_is_handled_as_without_spans(recorder, engine):
    class Bare(MemoryArrival):
        def recorded(self):
            raise NotFramedAvro("its headers lack 'ce_time'", remedy="", place=self.place)

    seen = []

    @subscription("payments", group="books")
    def take(event: Payment.Received) -> None:
        seen.append(event.amount)

    source = MemorySource([Bare(recorded(7), "7")])
    with Subscriber(take, source, around=[recorder.spans.handling]) as subscriber:
        assert subscriber.run_once(timeout=0).handled == 1
    assert (seen, recorder.tree()) == ([7], ["process payments"])


async def test_an_asynchronous_dispatcher_has_the_span_of_its_task_as_the_parent(tmp_path, recorder):
    async with AsyncSqlEventStore(f"sqlite+aiosqlite:///{tmp_path}/shop.db") as store:
        await store.create_tables()
        dispatcher = AsyncDispatcher(store, middleware=[recorder.spans.command])
        with recorder.provider.get_tracer("web").start_as_current_span("POST /orders"):
            await dispatcher.send("a", Counter.add, 1)
            await dispatcher.send("b", Counter.add, 1)
    assert recorder.tree() == ["POST /orders", "  counter.add", "  counter.add"]


async def test_a_coroutine_handler_runs_inside_its_span(tmp_path, recorder):
    seen = []

    @subscription("payments", group="books")
    async def take(event: Payment.Received) -> None:
        await asyncio.sleep(0)
        seen.append(f"{trace.get_current_span().get_span_context().span_id:016x}")

    source = MemorySource(arrivals(1, 2))
    async with AsyncSubscriber(take, source, around=[recorder.spans.handling]) as subscriber:
        await subscriber.run_once(timeout=0)
    assert recorder.tree() == ["process payments", "process payments"]
    assert seen == [f"{span.context.span_id:016x}" for span in recorder.ended]
