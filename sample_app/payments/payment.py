"""A payment: a fact that a provider reports once."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from eventstore import Aggregate, command, event


class Payment(Aggregate):
    """One payment of one order."""

    received: bool = False

    @event
    class Received:
        order_id: str
        customer_id: int
        amount: Decimal
        paid_at: dt.datetime

    @command
    def receive(self, *, order_id: str, customer_id: int, amount: Decimal, paid_at: dt.datetime) -> None:
        if self.received:
            self.refuse(f"payment {self.id} was received before")
        if amount <= 0:
            self.refuse("a payment needs an amount above zero")
        self.emit(self.Received(order_id=order_id, customer_id=customer_id, amount=amount, paid_at=paid_at))

    def on_received(self, e: Received) -> None:
        self.received = True
