"""The service that the console's tests look at: orders and customers in one SQLite file, and a view without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Annotated

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from cdc import capture_table
from eventstore import Aggregate, Dispatcher, Personal, SqlEventStore, command, event, subscription
from eventstore.processes import Process, reacts, starts, times_out
from projections import ProjectionGroup, Table, branches, field, on, view
from projections.declaring.columns import ColumnType
from projections.declaring.views import Reference
from projections.stores import runs
from projections.stores.sqlite import SqliteTableStore

SCRIPT = "<script>alert(1)</script>"


class Base(DeclarativeBase): ...


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Order(Aggregate):
    status: str = "new"
    note: str = ""

    @event
    class Placed:
        customer_id: int
        quantity: int
        note: str

    @event
    class Paid:
        amount: Decimal

    @command
    def place(self, *, customer_id: int, quantity: int, note: str = "") -> None:
        self.emit(self.Placed(customer_id=customer_id, quantity=quantity, note=note))

    @command
    def pay(self, *, amount: Decimal) -> None:
        self.emit(self.Paid(amount=amount))

    def on_placed(self, event: Placed) -> None:
        self.status, self.note = "placed", event.note

    def on_paid(self, event: Paid) -> None:
        self.status = "paid"


class Person(Aggregate):
    @event
    class Registered:
        name: Annotated[str, Personal(erased="(erased)")]
        country: str


orders = Table.from_events(
    Order,
    key="order_id",
    columns={column: on(Order.Placed).take(column) for column in ("customer_id", "quantity", "note")},
)
customers = Table.from_changelog(Customer, topic="teashop.public.customers")


@view(key="order_id")
def order_details(orders, customers):
    return orders.join(customers.withColumnsRenamed({"id": "customer_id", "name": "customer"}), "customer_id")


# As Spark plans it: these tests go without it.
order_details = replace(order_details, declared=(Reference("orders", ("customer_id",), "customers"),))

group = ProjectionGroup("teashop", [order_details])
order_branches = branches(Order, {"large": field("quantity") > 100}, otherwise="others")


@subscription("order.large", group="reviews")
def review(event: Order.Placed, tx: sa.Connection) -> None:
    tx.execute(sa.text("select 1"))


class Payment(Process, sends=[Order]):
    @starts(Order.Placed)
    def placed(self, event: Order.Placed) -> None:
        self.timeout("payment", after=timedelta(days=3))

    @reacts(Order.Paid)
    def paid(self, event: Order.Paid) -> None:
        self.done()

    @times_out("payment")
    def unpaid(self) -> None:
        self.done()


COLUMNS = {
    "order_details": {
        "order_id": ColumnType("string"),
        "customer_id": ColumnType("long"),
        "customer": ColumnType("string"),
        "quantity": ColumnType("long"),
        "note": ColumnType("string"),
    }
}


def fill(path) -> None:
    """Two orders, two customers, and a generation that has applied the first order and both customers."""
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        store.register(Order)
        Base.metadata.create_all(store.engine)
        capture_table(store.engine, Customer, topic=customers.topic)
        with Session(store.engine) as session, session.begin():
            session.add_all([Customer(id=7, name="Ann"), Customer(id=8, name=SCRIPT)])
        shop = Dispatcher(store)
        shop.send_or_raise("o1", Order.place, customer_id=7, quantity=3)
        shop.send_or_raise("o1", Order.pay, amount=Decimal("9.50"))
        shop.send_or_raise("o2", Order.place, customer_id=8, quantity=500, note=SCRIPT)
    serve(path)


def serve(path) -> None:
    """A generation as a rebuild would leave it, without Spark."""
    store = SqliteTableStore(path)
    store.prepare()
    run, layout = store.begin_generation(group, COLUMNS)
    _append(store, layout.tables["orders"].state, orders.columns, _positions(2),
            order_id=["o1", "o2"], customer_id=[7, 8], quantity=[3, 500], note=["", SCRIPT])  # fmt: skip
    _append(store, layout.tables["customers"].state, customers.columns, _positions(2), id=[7, 8], name=["Ann", SCRIPT])
    _append(store, layout.views["order_details"].view, COLUMNS["order_details"], {}, order_id=["o1", "o2"],
            customer_id=[7, 8], customer=["Ann", SCRIPT], quantity=[3, 500], note=["", SCRIPT])  # fmt: skip
    store.index_generation(group, layout)
    with store.transaction() as connection:
        columns = {name: list(found) for name, found in COLUMNS.items()}
        runs.set_built(connection, run, {"columns": columns, "tables": {"orders": {}, "customers": {}}})
    store.serve(group, run, layout, {"order": {0: 2}, customers.topic: {0: 3}})
    store.close()


def _positions(rows):
    at = list(range(1, rows + 1))
    return {"_epoch": [0] * rows, "_pos": at, "_offset": at, "_deleted": [False] * rows}


def _append(store, table, columns, positions, **values):
    typed = {name: pa.array(given, columns[name].arrow()) for name, given in values.items()}
    store.target(table).append(pa.table({**typed, **{name: pa.array(given) for name, given in positions.items()}}))
