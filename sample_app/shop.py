"""What the shop's web service would do with a request: reserve, then place; give back what was not placed."""

from __future__ import annotations

from decimal import Decimal

from eventstore import Accepted, Dispatcher, Refusal
from sample_app.inventory import InventoryItem
from sample_app.orders import Order


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
