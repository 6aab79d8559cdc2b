"""The books of the shop's day: each mistake that they would show."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from eventstore import ANY, SqlEventStore
from sample_app.fulfilment import Books
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import Refund
from sample_app.shop import pay_order, place_order
from tests.conformance.process_shop import Shop

RESERVED = InventoryItem.Reserved(order_id="o1", quantity=2)
SHIPPED, CANCELLED = Order.Shipped(carrier="Post"), Order.Cancelled(reason="score 100: too low")


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    with SqlEventStore(store_url) as store:
        shop = Shop(store)
        shop.send("sku", InventoryItem.receive, title="Tea", quantity=5)
        place_order(shop.dispatcher, "o1", customer_id=1, sku="sku", quantity=2, amount=Decimal(20))
        yield shop


def happens(shop: Shop, *events: object) -> None:
    streams = {InventoryItem.Reserved: "inventory-sku", Order.Shipped: "order-o1", Order.Cancelled: "order-o1"}
    for event in events:
        shop.store.append(streams[type(event)], [event], expected=ANY)


def paid(shop: Shop) -> str:
    """The id of the payment's event."""
    return str(pay_order(shop.dispatcher, "o1", customer_id=1, amount=Decimal(20)).events[0].id)


def refund(shop: Shop, payment: str, amount: int = 20) -> None:
    shop.send(payment, Refund.ask, order_id="o1", amount=Decimal(amount), reason="score 100")


def test_a_day_whose_orders_are_reserved_paid_and_shipped_is_right(shop):
    paid(shop)
    happens(shop, RESERVED, SHIPPED)
    assert Books.of(shop.store).facts() == {
        "orders": 1, "shipped": 1, "cancelled": {}, "reserved": 2, "held_by_orders": 2, "refunds": 0, "mistakes": [],
    }  # fmt: skip


def test_a_day_whose_orders_are_cancelled_and_refunded_is_right(shop):
    refund(shop, paid(shop))
    happens(shop, CANCELLED)
    assert Books.of(shop.store).facts() == {
        "orders": 1, "shipped": 0, "cancelled": {"score 100": 1}, "reserved": 0, "held_by_orders": 0, "refunds": 1,
        "mistakes": [],
    }  # fmt: skip


MISRESERVED = "1 orders that were shipped without their reservation, or keep one for nothing: o1"
MISCOUNTED = "1 articles of which more or less is reserved than orders hold: sku"


@pytest.mark.parametrize(
    ("pays", "events", "mistakes"),
    [
        pytest.param(False, [], ["1 orders that did not end: o1"], id="not ended"),
        pytest.param(False, [RESERVED, SHIPPED], ["1 orders that were shipped unpaid: o1"], id="unpaid"),
        pytest.param(True, [SHIPPED], [MISRESERVED, MISCOUNTED], id="without a reservation"),
        pytest.param(True, [RESERVED, RESERVED, SHIPPED], [MISRESERVED, MISCOUNTED], id="reserved twice"),
        pytest.param(False, [RESERVED, CANCELLED], [MISRESERVED, MISCOUNTED], id="a reservation left behind"),
    ],
)
def test_what_is_not_right_is_said(shop, pays, events, mistakes):
    if pays:
        paid(shop)
    happens(shop, *events)
    assert Books.of(shop.store).mistakes() == mistakes


@pytest.mark.parametrize("refunded", [None, 19])
def test_a_payment_of_a_cancelled_order_that_is_not_refunded_or_in_part_is_said(shop, refunded):
    payment = paid(shop)
    if refunded is not None:
        refund(shop, payment, refunded)
    happens(shop, CANCELLED)
    assert Books.of(shop.store).mistakes() == [f"1 payments that are refunded wrongly, or not: {payment}"]


def test_a_refund_of_a_shipped_order_is_said(shop):
    payment = paid(shop)
    happens(shop, RESERVED, SHIPPED)
    refund(shop, payment)
    assert Books.of(shop.store).mistakes() == [f"1 payments that are refunded wrongly, or not: {payment}"]
