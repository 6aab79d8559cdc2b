"""An article in stock; reservations keep the shop from selling what it does not have."""

from __future__ import annotations

from eventstore import Aggregate, command, event


class InventoryItem(Aggregate, category="inventory"):
    """What is on the shelf, and how much of it is promised to orders."""

    title: str = ""
    on_hand: int = 0
    reserved: int = 0

    @event
    class Received:
        title: str
        quantity: int

    @event
    class Reserved:
        order_id: str
        quantity: int

    @event
    class Released:
        order_id: str
        quantity: int

    @command
    def receive(self, *, title: str, quantity: int) -> None:
        if quantity < 1:
            self.refuse("a delivery needs a quantity of at least 1")
        self.emit(self.Received(title=title, quantity=quantity))

    @command
    def reserve(self, *, order_id: str, quantity: int) -> None:
        if quantity < 1:
            self.refuse("a reservation needs a quantity of at least 1")
        free = self.on_hand - self.reserved
        if quantity > free:
            self.refuse(f"only {free} of {self.title or self.id} left, {quantity} requested")
        self.emit(self.Reserved(order_id=order_id, quantity=quantity))

    @command
    def release(self, *, order_id: str, quantity: int) -> None:
        if quantity > self.reserved:
            self.refuse(f"only {self.reserved} of {self.title or self.id} are reserved, {quantity} to be released")
        self.emit(self.Released(order_id=order_id, quantity=quantity))

    def on_received(self, e: Received) -> None:
        self.title = e.title
        self.on_hand += e.quantity

    def on_reserved(self, e: Reserved) -> None:
        self.reserved += e.quantity

    def on_released(self, e: Released) -> None:
        self.reserved -= e.quantity
