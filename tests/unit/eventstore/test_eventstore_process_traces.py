"""Traces of processes: what a step decided stands below it, over commands, replies and timers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventstore import SqlEventStore
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.tracing import trace
from eventstore.processes import Process, reacts, starts
from tests.conformance.process_shop import Shop
from tests.unit.eventstore.fulfilment import Item, Order, Payment


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    with SqlEventStore(store_url) as store:
        yield Shop(store)


def tree(shop: Shop) -> list[str]:
    (placed, *_) = shop.store.read_stream("order-o1")
    found = trace(placed.metadata.correlation_id, [StoreLog(shop.store)])
    return [f"{'  ' * step.depth}{step.name}" for step in found.steps]


def test_a_time_out_is_traced_from_the_placing_to_the_cancellation(shop):
    shop.stock(5)
    shop.place("o1")
    shop.deliver()
    shop.worker().drain()
    shop.pass_time(minutes=31)
    shop.worker().drain()
    assert tree(shop) == [
        "None",  # the name of a command that is sent once is not recorded
        "  order.placed",
        "    process.stepped",
        "      item.reserve",
        "        item.reserved",
        "        process.stepped",
        "      timer.payment",
        "        process.stepped",
        "          item.release",
        "            item.released",
        "            process.stepped",
        "              order.cancel",
        "                order.cancelled",
    ]


def test_a_refused_command_stands_in_the_trace_although_it_has_no_event(shop):
    shop.place("o1")
    shop.deliver()
    shop.worker().drain()
    assert tree(shop)[2:] == [
        "    process.stepped",
        "      item.reserve",
        "        process.stepped",
        "          order.cancel",
        "            order.cancelled",
    ]


class Stocking(Process, sends=[Item]):
    @starts(Order.Placed)
    def placed(self) -> None:
        self.send("first", Item.receive, quantity=1)

    @reacts(Payment.Received, id="order_id")
    def paid(self) -> None:
        self.send("second", Item.receive, quantity=1)


def test_what_two_steps_of_one_batch_decided_stands_below_its_own_step(shop):
    shop = Shop(shop.store, Stocking)
    shop.place("o1")
    shop.pay("o1")
    shop.deliver()
    shop.worker().drain()
    steps = list(shop.store.read_stream("stocking-o1"))
    received = [event for item in ("first", "second") for event in shop.store.read_stream(f"item-{item}")]
    assert [event.metadata.causation_id.split()[-1] for event in received] == [str(step.id) for step in steps]
