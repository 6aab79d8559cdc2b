"""Spans: a command, its events, the reactions to them and the commands these send are one trace."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
import sqlalchemy as sa
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from eventstore import (
    Aggregate,
    AsyncDispatcher,
    AsyncSqlEventStore,
    AsyncSubscriber,
    Dispatcher,
    MemoryEventStore,
    Metadata,
    RecordedEvent,
    Subscriber,
    command,
    event,
    subscription,
)
from eventstore.aggregates.dispatcher import required
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import NotFramedAvro
from eventstore.metrics import ProcessMetrics
from eventstore.processes.running import run_processes
from eventstore.spans import Spans
from sample_app.background import Background
from tests.ledger import Payment
from tests.spans import Recorder
from tests.unit.eventstore.counter import Counter
from tests.unit.eventstore.fulfilment import Fulfilment, Order
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource, arrivals, recorded
from tests.waiting import wait_until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Receipt(Aggregate):
    @event
    class Printed:
        order_id: str

    @command
    def print(self, *, order_id: str) -> None:
        self.emit(self.Printed(order_id=order_id))


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
        dispatcher.within(tx).with_metadata(recorded.caused()).send("r1", Receipt.print, order_id=order)

    return print_receipt


def deliver(store, declared, recorder):
    source = StoreSource(store, declared, category="counter")
    with Subscriber(declared, source, engine=store.engine, around=[recorder.spans.handling]) as subscriber:
        while subscriber.run_once(timeout=0).records:
            pass
        return subscriber.report


def test_command_event_reaction_and_next_command_are_one_trace(store, recorder):
    dispatcher = traced_dispatcher(store, recorder)
    dispatcher.send("a", Counter.add, 1)
    assert deliver(store, printing(dispatcher), recorder).handled == 1
    assert recorder.tree() == ["counter.add", "  process counter", "    receipt.print"]
    assert len(recorder.traces()) == 1
    (printed,) = store.read_stream("receipt-r1")
    assert printed.metadata.traceparent.split("-")[1:3] == [
        *recorder.traces(), f"{recorder.ended[-1].context.span_id:016x}",
    ]  # fmt: skip


def test_the_span_of_a_handler_says_what_was_handled_by_whom(store, recorder):
    dispatcher = traced_dispatcher(store, recorder)
    dispatcher.send("a", Counter.add, 1)
    deliver(store, printing(dispatcher), recorder)
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
    assert deliver(store, fails, recorder).dead == 1
    span = recorder.ended[-1]
    assert (span.attributes["error.type"], span.status.status_code) == ("ValueError", StatusCode.ERROR)
    assert "ann@example.org" not in span.to_json()


def test_a_batch_of_several_traces_is_linked_to_each(store, recorder):
    for number, parent in enumerate((PARENT, OTHER, None)):
        Dispatcher(store).with_metadata(Metadata(traceparent=parent)).send(f"c{number}", Counter.add, 1)

    @subscription("counter", group="sums")
    def take(events: list[Counter.Counted], tx: sa.Connection) -> None: ...

    assert deliver(store, take, recorder).handled == 3
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

    deliver(store, take, recorder)
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
