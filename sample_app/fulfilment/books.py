"""What has to be true at the end of the day, whatever was refused, was late, or died: read from the events alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from eventstore import Aggregate, RecordedEvent, SqlEventStore
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import Payment, Refund

ENDED = frozenset({"shipped", "cancelled"})


@dataclass
class Books:
    """Orders, articles, payments and refunds as the events made them."""

    orders: dict[str, Order] = field(default_factory=dict)
    articles: dict[str, InventoryItem] = field(default_factory=dict)
    payments: dict[str, tuple[str, Decimal]] = field(default_factory=dict)  # by the id of the event
    refunds: dict[str, tuple[str, Decimal]] = field(default_factory=dict)  # by the id of the payment's event
    reservations: Counter[str] = field(default_factory=Counter)  # by order
    reasons: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def of(store: SqlEventStore) -> Books:
        """Read all events of orders, articles, payments and refunds."""
        books = Books()
        for event in store.read_all(category=Order.category):
            books._order(event)
        for event in store.read_all(category=InventoryItem.category):
            books._article(event)
        for event in store.read_all(category=Payment.category):
            books.payments[str(event.id)] = event.data["order_id"], event.data["amount"]
        for event in store.read_all(category=Refund.category):
            books.refunds[_id(event)] = event.data["order_id"], event.data["amount"]
        return books

    @property
    def shipped(self) -> set[str]:
        """The orders that left the house."""
        return {order_id for order_id, order in self.orders.items() if order.status == "shipped"}

    @property
    def reserved(self) -> int:
        """How many pieces are reserved."""
        return sum(article.reserved for article in self.articles.values())

    def mistakes(self) -> list[str]:
        """What is not as it has to be, in words; nothing where all is well."""
        paid, shipped = {order_id for order_id, _ in self.payments.values()}, self.shipped
        unshipped = {event: payment for event, payment in self.payments.items() if payment[0] not in shipped}
        mistakes = {
            "orders that did not end": [name for name, order in self.orders.items() if order.status not in ENDED],
            "orders that were shipped unpaid": sorted(shipped - paid),
            "orders that were shipped without their reservation, or keep one for nothing": self._misreserved(),
            "articles of which more or less is reserved than orders hold": self._miscounted(),
            "payments that are refunded wrongly, or not": sorted(
                key for key in unshipped.keys() | self.refunds.keys() if unshipped.get(key) != self.refunds.get(key)
            ),
        }
        return [f"{len(names)} {what}: {', '.join(names[:5])}" for what, names in mistakes.items() if names]

    def facts(self) -> dict[str, Any]:
        """The day in figures."""
        return {
            "orders": len(self.orders),
            "shipped": len(self.shipped),
            "cancelled": dict(self.reasons),
            "reserved": self.reserved,
            "held_by_orders": sum(self.orders[order_id].quantity for order_id in self.shipped),
            "refunds": len(self.refunds),
            "mistakes": self.mistakes(),
        }

    def _order(self, event: RecordedEvent) -> None:
        _fold(self.orders, Order, event)
        if event.type == "order.cancelled":
            self.reasons[event.data["reason"].partition(":")[0].partition(",")[0]] += 1

    def _article(self, event: RecordedEvent) -> None:
        _fold(self.articles, InventoryItem, event)
        sign = {"inventory.reserved": 1, "inventory.released": -1}.get(event.type)
        if sign is not None:
            self.reservations[event.data["order_id"]] += sign * event.data["quantity"]

    def _misreserved(self) -> list[str]:
        expected = {name: order.quantity if order.status == "shipped" else 0 for name, order in self.orders.items()}
        return [name for name, quantity in expected.items() if self.reservations[name] != quantity]

    def _miscounted(self) -> list[str]:
        held: Counter[str] = Counter()
        for order_id in self.shipped:
            held[self.orders[order_id].sku] += self.orders[order_id].quantity
        return [sku for sku, article in self.articles.items() if article.reserved != held[sku]]


def _id(event: RecordedEvent) -> str:
    return event.stream.partition("-")[2]


def _fold(states: dict[str, Any], kind: type[Aggregate], event: RecordedEvent) -> None:
    name = _id(event)
    states[name] = kind.fold(states.get(name) or kind.initial_state(name), [event])
