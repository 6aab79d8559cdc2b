"""What the shop's web service would do with a request: commands one after another, taken back where one is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from eventstore import Accepted, Dispatcher, Refusal
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import Payment


def place_order(
    dispatcher: Dispatcher, order_id: str, *, customer_id: int, sku: str, quantity: int, amount: Decimal
) -> Accepted | Refusal:
    """Reserve the article and place the order; either may be refused, with its reason."""
    reserved = dispatcher.send(sku, InventoryItem.reserve, order_id=order_id, quantity=quantity)
    if isinstance(reserved, Refusal):
        return reserved
    placed = dispatcher.send(order_id, Order.place, customer_id=customer_id, sku=sku, quantity=quantity, amount=amount)
    if isinstance(placed, Refusal):
        dispatcher.send(sku, InventoryItem.release, order_id=order_id, quantity=quantity)
    return placed


def pay_order(dispatcher: Dispatcher, order_id: str, *, customer_id: int, amount: Decimal) -> Accepted | Refusal:
    """Take the payment of an order; a second one is refused."""
    paid_at = dt.datetime.now(dt.UTC)
    return dispatcher.send(
        f"pay-{order_id}", Payment.receive, order_id=order_id, customer_id=customer_id, amount=amount, paid_at=paid_at
    )


def cancel_order(dispatcher: Dispatcher, order_id: str, *, reason: str) -> Accepted | Refusal:
    """Cancel an order that has not left the house, and give back what was reserved for it."""
    cancelled = dispatcher.send(order_id, Order.cancel, reason=reason)
    if isinstance(cancelled, Accepted):
        order = dispatcher.load(Order, order_id)
        dispatcher.send(order.sku, InventoryItem.release, order_id=order_id, quantity=order.quantity)
    return cancelled
