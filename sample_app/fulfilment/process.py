"""An order is reserved, paid, looked at if its payment is suspicious, and shipped; or everything is undone.

    placed ──▶ reserve ──▶ paid ──▶ (released by the fraud service) ──▶ ship ──▶ done
                  │          │                  │
               refused   not in time   cancelled, or not reviewed    ──▶ release, cancel, refund

Events of different topics come in any order, so each one is noted, and the order ships when all conditions hold.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import ClassVar

from eventstore.processes import Process, Reply, compensated, late, reacts, replies, starts, times_out
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import SUSPICIOUS_ABOVE, Payment, Refund

CARRIER = "Post"


class Fulfilment(Process, sends=[InventoryItem, Order, Refund]):
    """One instance for each order, under the order's id."""

    payment_within: ClassVar[timedelta] = timedelta(minutes=30)
    review_within: ClassVar[timedelta] = timedelta(days=1)

    amount: Decimal = Decimal(0)
    payment: str = ""  # the id of its event; a refund has the same
    reserved: bool = False
    released: bool = False
    shipping: bool = False
    cancelled: bool = False
    why: str = "given up by hand"

    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.amount = event.amount
        reserving = self.send(event.sku, InventoryItem.reserve, order_id=self.id, quantity=event.quantity)
        reserving.undone_by(InventoryItem.release, order_id=self.id, quantity=event.quantity)
        self.timeout("payment", after=self.payment_within)

    @replies(InventoryItem.reserve)
    def answered(self, reply: Reply) -> None:
        self.reserved = reply.accepted
        self._ship_if_ready()
        if not reply.accepted:
            self._give_up(f"out of stock: {reply.reason}")

    @reacts(Payment.Received, id="order_id")
    def paid(self, event: Payment.Received) -> None:
        if self.payment or event.amount != self.amount:
            self._refund(str(self.cause.id), event.amount, "paid twice" if self.payment else "not the order's amount")
            return
        self.payment = str(self.cause.id)
        self.cancel("payment")
        if self._suspicious:
            self.timeout("review", after=self.review_within)
        self._ship_if_ready()

    @late(Payment.Received, id="order_id")
    def paid_late(self, event: Payment.Received) -> None:
        self._refund(str(self.cause.id), event.amount, "paid after the end of the order")

    @times_out("payment")
    def unpaid(self) -> None:
        self._give_up("not paid in time")

    @reacts(Order.Released)
    def trusted(self) -> None:
        self.released = True
        self._ship_if_ready()

    @times_out("review")
    def not_reviewed(self) -> None:
        self._give_up("its payment was not reviewed in time")

    @replies(Order.ship)
    def sent(self, reply: Reply) -> None:
        if reply.accepted:
            self.done()
            return
        # It was held or cancelled meanwhile. The process waits for the event with the outcome, or for the time-out.
        self.shipping = self.released = False
        self.timeout("review", after=self.review_within)

    @reacts(Order.Shipped)
    @late(Order.Shipped)
    def shipped(self) -> None:
        self.done()

    @reacts(Order.Cancelled)
    @late(Order.Cancelled)
    def called_off(self, event: Order.Cancelled) -> None:
        self.cancelled = True
        self._give_up(event.reason)

    @compensated
    def undone(self) -> None:
        if not self.cancelled:
            self.send(self.id, Order.cancel, reason=self.why)
        if self.payment:
            self._refund(self.payment, self.amount, self.why)

    @property
    def _suspicious(self) -> bool:
        return self.amount > SUSPICIOUS_ABOVE and not self.released

    def _ship_if_ready(self) -> None:
        if self.reserved and self.payment and not self.shipping and not self._suspicious:
            self.shipping = True
            self.cancel("review")
            self.send(self.id, Order.ship, carrier=CARRIER)

    def _give_up(self, reason: str) -> None:
        self.why = reason
        self.compensate(reason)

    def _refund(self, payment: str, amount: Decimal, reason: str) -> None:
        self.send(payment, Refund.ask, order_id=self.id, amount=amount, reason=reason)
