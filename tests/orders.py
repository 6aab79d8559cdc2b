"""Orders that are placed and shipped: the aggregate of tests that need no more than some events."""

from __future__ import annotations

from eventstore import Aggregate, command, event


class Order(Aggregate):
    """An order of one article."""

    sku: str = ""

    @event
    class Placed:
        sku: str

    @event
    class Shipped:
        carrier: str

    @command
    def place(self, *, sku: str) -> None:
        self.emit(self.Placed(sku=sku))

    def on_placed(self, event: Placed) -> None:
        self.sku = event.sku


PLACED = Order.Placed(sku="tea")
