"""A user's code in the class style, with mistakes; what a type checker says of a line stands behind it.

Read by test_typing.py, and run by nobody.
"""

from __future__ import annotations

from decimal import Decimal
from typing import reveal_type

from eventstore import (
    Aggregate,
    AsyncDispatcher,
    AsyncSqlEventStore,
    Dispatcher,
    MemoryEventStore,
    SqlEventStore,
    command,
    event,
    subscription,
)
from eventstore.testing.scenario import given


class Order(Aggregate):
    total: Decimal = Decimal(0)

    @event
    class Placed:
        sku: str
        amount: Decimal
        note: str | None = None

    @command
    def place(self, sku: str, *, amount: Decimal) -> None:
        self.emit(self.Placed(sku=sku, amount=amount))
        self.emit(self.Placed(sku=sku, amount="much"))  # error: arg-type

    def on_placed(self, e: Placed) -> None:
        self.total += e.amount
        self.total += e.price  # error: attr-defined


class Gift(Order, category="gift"):
    pass


orders = Dispatcher(MemoryEventStore())
placed = Order.Placed(sku="tea", amount=Decimal(1))
reveal_type(placed.sku)  # note: "str"
reveal_type(placed.note)  # note: "str | None"
reveal_type(orders.load(Order, "1").total)  # note: "decimal.Decimal"
reveal_type(orders.send("1", Order.place, "tea", amount=Decimal(1)))  # note: Refusal"

Order.Placed(sku=3, amount=Decimal(1))  # error: arg-type
Order.Placed(sku="tea")  # error: call-arg
Order.Placed("tea", Decimal(1))  # error: call-arg
Order.Placed(sku="tea", amount=Decimal(1), colour="red")  # error: call-arg
placed.sku = "ink"  # error: misc

orders.send("1", Order.place, "tea", amount="much")  # error: arg-type
orders.send("1", Order.place, "tea")  # error: call-arg
orders.send("1", Gift.place, 3, amount=Decimal(1))  # error: arg-type
orders.once("no id").send("1", Order.place, "tea", amount=Decimal(1))  # error: arg-type
given(Order, placed).when(Order.place, sku=3, amount=Decimal(1))  # error: arg-type

with SqlEventStore("sqlite://") as store, store.engine.begin() as tx:
    Dispatcher(store).within(tx).send("1", Order.place, 3, amount=Decimal(1))  # error: arg-type


async def main() -> None:
    async with AsyncSqlEventStore("sqlite://") as store:
        await AsyncDispatcher(store).send("1", Order.place, 3, amount=Decimal(1))  # error: arg-type
        reveal_type((await AsyncDispatcher(store).load(Order, "1")).total)  # note: "decimal.Decimal"
        reveal_type(await store.head("order-1"))  # note: "int | None"
        events = store.read_stream("order-1", limit=2)
        reveal_type(events)  # note: "typing.AsyncIterator[eventstore.store.RecordedEvent]"
        await store.head(1)  # error: arg-type
        store.read_stream("order-1", after=2)  # error: call-arg


@subscription("order", group="books")
def book(paid: Order.Placed) -> int:
    return len(paid.sku)


reveal_type(book(placed))  # note: "int"
book("tea")  # error: arg-type
