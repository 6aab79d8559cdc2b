"""Orders, articles and customers of a kiosk: the definitions that every road runs. Importable by Spark's workers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import sqlalchemy as sa
from pyspark.sql import DataFrame

from cdc import UtcDateTime
from eventstore import Aggregate, RecordedEvent, command, event, subscription
from projections import ProjectionGroup, Stream, Table, branches, field, join_versions, on, view


class KioskOrder(Aggregate):
    """An order of one article by one customer."""

    @event
    class Placed:
        customer_id: int
        sku: str | None
        amount: Decimal
        at: dt.datetime

    @event
    class Handed:
        customer_id: int

    @command
    def place(self, *, customer_id: int, sku: str | None, amount: Decimal, at: dt.datetime) -> None:
        self.emit(self.Placed(customer_id=customer_id, sku=sku, amount=amount, at=at))

    @command
    def hand_over(self, *, customer_id: int) -> None:
        self.emit(self.Handed(customer_id=customer_id))


class KioskArticle(Aggregate):
    """An article whose stock its own code counts."""

    stock: int = 0
    price: Decimal = Decimal(0)

    @event
    class Priced:
        price: Decimal

    @event
    class Stocked:
        by: int

    @command
    def price_at(self, *, price: Decimal) -> None:
        self.emit(self.Priced(price=price))

    @command
    def stock_up(self, *, by: int) -> None:
        self.emit(self.Stocked(by=by))

    def on_priced(self, e: Priced) -> None:
        self.price = e.price

    def on_stocked(self, e: Stocked) -> None:
        self.stock += e.by


METADATA = sa.MetaData()
CUSTOMERS = sa.Table(
    "customers", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text, nullable=False),
    sa.Column("credit", sa.Numeric(12, 2)), sa.Column("active", sa.Boolean), sa.Column("since", sa.Date),
    sa.Column("seen", UtcDateTime()),
)  # fmt: skip

orders = Table.from_events(
    KioskOrder,
    key="order_id",
    columns={
        "customer_id": [on(KioskOrder.Placed).take("customer_id"), on(KioskOrder.Handed).take("customer_id")],
        "sku": on(KioskOrder.Placed).take("sku"),
        "amount": on(KioskOrder.Placed).take("amount"),
        "at": on(KioskOrder.Placed).take("at"),
    },
)
articles = Table.from_events(KioskArticle, key="sku")
customers = Table.from_changelog(CUSTOMERS, topic="kiosk.public.customers")
placed = Stream.from_events(
    KioskOrder, events=KioskOrder.Placed, key="order_id", time="at", columns=["customer_id", "amount"]
)
customer_versions = Table.versions_of(CUSTOMERS, topic=customers.topic)


@view(key="order_id")
def kiosk_sales(orders: DataFrame, customers: DataFrame, articles: DataFrame) -> DataFrame:
    """Every order with its customer, who must be there, and its article, which need not."""
    buyers = customers.withColumnsRenamed({"id": "customer_id", "name": "customer"})
    joined = orders.join(buyers, "customer_id").join(articles, "sku", "left")
    return joined.select(
        "order_id", "customer", "credit", "active", "since", "seen", "amount", "at", "sku", "stock", "price"
    )


@view(key="order_id")
def kiosk_risk(placed: DataFrame, customer_versions: DataFrame) -> DataFrame:
    """Every order as it was placed, with who its customer was then and how good, where there was one."""
    then = {"customer_then": "name", "credit_then": "credit"}
    return join_versions(placed, customer_versions, on="customer_id", how="left", take=then)


GROUP = ProjectionGroup("kiosk", [kiosk_sales, kiosk_risk])


LARGE = 50_000
order_branches = branches(KioskOrder, {"large": field("amount") > LARGE}, otherwise="small")

NOTES = sa.MetaData()
# No unique constraint: whatever is handled twice is here twice.
NOTED = sa.Table("noted", NOTES, sa.Column("id", sa.Integer, primary_key=True), sa.Column("order_id", sa.Text))


@subscription("kiosk_order.large", group="kiosk-notes")
def note_large(event: KioskOrder.Placed, recorded: RecordedEvent, tx: sa.Connection) -> None:
    """Note a large order."""
    tx.execute(sa.insert(NOTED).values(order_id=recorded.stream.removeprefix("kiosk_order-")))
