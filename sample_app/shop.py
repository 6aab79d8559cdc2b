"""What the shop's web service does with a request; what follows from it is the work of sample_app.fulfilment."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from eventstore import Accepted, Dispatcher, Refusal
from sample_app.orders import Order
from sample_app.payments import Payment


def place_order(
    dispatcher: Dispatcher, order_id: str, *, customer_id: int, sku: str, quantity: int, amount: Decimal
) -> Accepted | Refusal:
    """Place an order; whether the article is there is found out after it."""
    return dispatcher.send(order_id, Order.place, customer_id=customer_id, sku=sku, quantity=quantity, amount=amount)


def pay_order(dispatcher: Dispatcher, order_id: str, *, customer_id: int, amount: Decimal) -> Accepted | Refusal:
    """Take the payment of an order; a second one is refused."""
    paid_at = dt.datetime.now(dt.UTC)
    return dispatcher.send(
        f"pay-{order_id}", Payment.receive, order_id=order_id, customer_id=customer_id, amount=amount, paid_at=paid_at
    )


def cancel_order(dispatcher: Dispatcher, order_id: str, *, reason: str) -> Accepted | Refusal:
    """Cancel an order that has not left the house; its reservation and its payment are given back after it."""
    return dispatcher.send(order_id, Order.cancel, reason=reason)
