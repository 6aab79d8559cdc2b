"""A refund: money that goes back, since what it paid for is not delivered."""

from __future__ import annotations

from decimal import Decimal

from eventstore import Aggregate, command, event


class Refund(Aggregate):
    """The refund of one payment, named by the id of the payment's event."""

    asked: bool = False

    @event
    class Asked:
        order_id: str
        amount: Decimal
        reason: str

    @command
    def ask(self, *, order_id: str, amount: Decimal, reason: str) -> None:
        if not self.asked:
            self.emit(self.Asked(order_id=order_id, amount=amount, reason=reason))

    def on_asked(self, e: Asked) -> None:
        self.asked = True
