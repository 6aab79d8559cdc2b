"""Processes whose runners are killed: each order is reserved, then paid and shipped, or given up after its time."""

from __future__ import annotations

from datetime import timedelta

from eventstore.processes import Process, compensated, reacts, replies, starts, times_out
from tests.unit.eventstore.fulfilment import Item, Order, Payment


class Delivery(Process, sends=[Item, Order]):
    fired: int = 0
    answers: int = 0

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        reservation = {"order_id": self.id, "quantity": event.quantity}
        self.send(event.sku, Item.reserve, **reservation).undone_by(Item.release, **reservation)
        self.timeout("payment", after=timedelta(seconds=int(event.amount)))

    @replies(Item.reserve)
    def reserved(self) -> None:
        self.answers += 1

    @reacts(Payment.Received, id="order_id")
    def paid(self) -> None:
        self.cancel("payment")
        self.send(self.id, Order.ship, carrier="Post")
        self.done()

    @times_out("payment")
    def unpaid(self) -> None:
        self.fired += 1
        self.compensate("not paid in time")

    @compensated
    def undone(self) -> None:
        self.send(self.id, Order.cancel, reason="not paid in time")
