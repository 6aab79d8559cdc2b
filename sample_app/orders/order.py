"""An order: placed, held while its payment is looked at, then shipped or cancelled."""

from __future__ import annotations

from decimal import Decimal

from eventstore import Aggregate, command, event


class Order(Aggregate):
    """One customer's order of one article."""

    status: str = "new"
    sku: str = ""
    quantity: int = 0

    @event
    class Placed:
        customer_id: int
        sku: str
        quantity: int
        amount: Decimal

    @event
    class Held:
        reason: str

    @event
    class Released:
        reason: str

    @event
    class Shipped:
        carrier: str

    @event
    class Cancelled:
        reason: str

    @command
    def place(self, *, customer_id: int, sku: str, quantity: int, amount: Decimal) -> None:
        if self.status != "new":
            self.refuse(f"order {self.id} was placed before")
        if quantity < 1:
            self.refuse("an order needs a quantity of at least 1")
        self.emit(self.Placed(customer_id=customer_id, sku=sku, quantity=quantity, amount=amount))

    @command
    def hold(self, *, reason: str) -> None:
        if self.status == "held":
            return
        self._require("placed", to="held")
        self.emit(self.Held(reason=reason))

    @command
    def release(self, *, reason: str) -> None:
        self._require("held", to="released")
        self.emit(self.Released(reason=reason))

    @command
    def ship(self, *, carrier: str) -> None:
        if self.status == "shipped":
            return
        self._require("placed", to="shipped")
        self.emit(self.Shipped(carrier=carrier))

    @command
    def cancel(self, *, reason: str) -> None:
        if self.status == "cancelled":
            return
        self._require("placed", "held", to="cancelled")
        self.emit(self.Cancelled(reason=reason))

    def _require(self, *allowed: str, to: str) -> None:
        if self.status not in allowed:
            self.refuse(f"order {self.id} is {self.status}: only a {' or '.join(allowed)} order can be {to}")

    def on_placed(self, e: Placed) -> None:
        self.status = "placed"
        self.sku, self.quantity = e.sku, e.quantity

    def on_held(self, e: Held) -> None:
        self.status = "held"

    def on_released(self, e: Released) -> None:
        self.status = "placed"

    def on_shipped(self, e: Shipped) -> None:
        self.status = "shipped"

    def on_cancelled(self, e: Cancelled) -> None:
        self.status = "cancelled"
