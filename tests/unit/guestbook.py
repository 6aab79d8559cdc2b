"""A service that the commands look at: an order, a customer whose name is personal, and a subscription."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import sqlalchemy as sa

from eventstore import Aggregate, Digits, Personal, RecordedEvent, command, event, subscription


class Order(Aggregate):
    status: str = "new"
    total: Decimal = Decimal(0)
    items: list[str] = []  # noqa: RUF012 - a state's default, made anew for each

    @event
    class Placed:
        amount: Annotated[Decimal, Digits(9, 2)]
        item: str

    @event
    class Shipped:
        by: str

    @command
    def place(self, amount: Decimal, item: str) -> None:
        self.emit(self.Placed(amount=amount, item=item))

    @command
    def ship(self, by: str) -> None:
        self.emit(self.Shipped(by=by))

    def on_placed(self, event: Placed) -> None:
        self.status, self.total = "placed", self.total + event.amount
        self.items.append(event.item)

    def on_shipped(self, event: Shipped) -> None:
        self.status = "shipped"


class Customer(Aggregate):
    name: str = ""

    @event
    class Registered:
        name: Annotated[str, Personal(erased="(erased)")]
        country: str

    def on_registered(self, event: Registered) -> None:
        self.name = event.name


@subscription("order", group="shipping")
def ship(event: Order.Placed, recorded: RecordedEvent, tx: sa.Connection) -> None:
    tx.exec_driver_sql("create table if not exists parcels (stream text, item text)")
    tx.exec_driver_sql("insert into parcels values (?, ?)", (recorded.stream, event.item))
