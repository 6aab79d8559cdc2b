"""An order: placed, then shipped or cancelled."""

from __future__ import annotations

from decimal import Decimal

from eventstore import Aggregate, command, event


class Order(Aggregate):
    """One customer's order of one article."""

    status: str = "new"

    @event
    class Placed:
        customer_id: int
        sku: str
        quantity: int
        amount: Decimal

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
    def ship(self, *, carrier: str) -> None:
        if self.status != "placed":
            self.refuse(f"order {self.id} is {self.status}: only a placed order can be shipped")
        self.emit(self.Shipped(carrier=carrier))

    @command
    def cancel(self, *, reason: str) -> None:
        if self.status == "shipped":
            self.refuse(f"order {self.id} has left the house")
        if self.status == "placed":
            self.emit(self.Cancelled(reason=reason))

    def on_placed(self, e: Placed) -> None:
        self.status = "placed"

    def on_shipped(self, e: Shipped) -> None:
        self.status = "shipped"

    def on_cancelled(self, e: Cancelled) -> None:
        self.status = "cancelled"
