"""A kiosk: its aggregates, tables and views, and the history of what happens there."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyspark.sql import DataFrame

from cdc import UtcDateTime
from eventstore import STREAM_EXISTS, Accepted, Aggregate, RecordedEvent, command, event, subscription
from projections import ProjectionGroup, Stream, Table, branches, field, join_versions, on, view
from projections.stores.arrow import arrow_schema
from projections.stores.comparison import digest_rows


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


# ---- the same random life of the kiosk for every road


_CUSTOMERS, _SKUS = range(1, 7), ["tea", "ink", "thé", "no such thing"]
_BEGUN = dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=dt.UTC)
_NEVER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)  # comes after everything that happens
_APART = dt.timedelta(milliseconds=2)  # a trigger's clock has whole milliseconds
_DIGITS = {
    "credit": Decimal("0.01"), "credit_then": Decimal("0.01"), "amount": Decimal("0.0001"), "price": Decimal("0.0001"),
}  # fmt: skip


class KioskHistory:
    """Lives on by ``steps``; ``digest`` is what a view's has to be then.

    Between any two changes of customers lies a moment whose customers are known; orders fall on those of any time.
    """

    def __init__(self, dispatcher, engine, *, seed):
        self._dispatcher, self._engine, self._random = dispatcher, engine, random.Random(seed)
        self.orders: dict[str, dict[str, Any]] = {}
        self.placed: dict[str, dict[str, Any]] = {}
        self.articles: dict[str, dict[str, Any]] = {}
        self.customers: dict[int, dict[str, Any]] = {}
        self._ids, self._skus = count(), _SKUS[:-1]
        self._moments: list[tuple[dt.datetime, dict[int, dict[str, Any]]]] = []

    def steps(self, count):
        """Let so many things happen."""
        for _ in range(count):
            self._random.choice([self._order, self._order, self._article, self._customer])()

    def _send(self, *arguments, **named):
        assert isinstance(self._dispatcher.send(*arguments, **named), Accepted)

    def _order(self):
        customer = self._random.choice(_CUSTOMERS)
        if self.orders and self._random.random() < 0.4:
            order = self._random.choice(sorted(self.orders))
            self._send(order, KioskOrder.hand_over, customer_id=customer)
            self.orders[order]["customer_id"] = customer
            return
        placed = {
            "customer_id": customer, "sku": self._random.choice([None, *_SKUS]),
            "amount": Decimal(self._random.randint(0, 10**9)) / 10_000,
            "at": self._random.choice([
                _BEGUN + dt.timedelta(seconds=self._random.randint(0, 10**7)), _NEVER,
                *(moment for moment, _ in self._random.sample(self._moments, min(4, len(self._moments)))),
            ]),
        }  # fmt: skip
        order = f"o{next(self._ids)}"
        self._send(order, KioskOrder.place, **placed)
        self.orders[order], self.placed[order] = placed, dict(placed)

    def _article(self):
        sku = self._random.choice(self._skus)
        article = self.articles.setdefault(sku, {"stock": 0, "price": Decimal(0)})
        if self._random.random() < 0.5:
            by = self._random.randint(1, 9)
            self._send(sku, KioskArticle.stock_up, by=by)
            article["stock"] += by
        else:
            article["price"] = Decimal(self._random.randint(1, 999)) / 100
            self._send(sku, KioskArticle.price_at, price=article["price"])

    def _customer(self):
        """Insert, change, delete, or give another key; what was deleted comes back in the course of time."""
        key = self._random.choice(_CUSTOMERS)
        row, here = self._row(key), CUSTOMERS.c.id == key
        if key not in self.customers:
            self.customers[key] = row
            self._execute(sa.insert(CUSTOMERS).values(row))
        elif self._random.random() < 0.3:
            del self.customers[key]
            self._execute(sa.delete(CUSTOMERS).where(here))
        else:
            free = [k for k in _CUSTOMERS if k not in self.customers]
            del self.customers[key]
            row["id"] = free[0] if free and self._random.random() < 0.3 else key
            self.customers[row["id"]] = row
            before = sa.update(CUSTOMERS).where(here).values(self._row(key))
            self._execute(before, before, sa.update(CUSTOMERS).where(here).values(row))
        self._remember()

    def delete(self, store, order):
        """Delete the stream of an order, and that of an article which was among the orders."""
        store.delete_stream(f"kiosk_order-{order}", expected=STREAM_EXISTS)
        del self.orders[order], self.placed[order]
        sku = self._skus.pop()
        store.delete_stream(f"kiosk_article-{sku}", expected=STREAM_EXISTS)
        del self.articles[sku]

    def _row(self, key):
        return {
            "id": key, "name": f"name {self._random.randint(0, 99)}, 'ü'",
            "credit": self._random.choice([None, Decimal("-0.50"), Decimal("1234567.89")]),
            "active": self._random.choice([None, True, False]),
            "since": self._random.choice([None, dt.date(2024, 2, 29)]),
            "seen": self._random.choice([None, _BEGUN, _BEGUN.replace(microsecond=0)]),
        }  # fmt: skip

    def _execute(self, *statements):
        """In one transaction, whose last statement counts."""
        with self._engine.begin() as connection:
            for statement in statements:
                connection.execute(statement)

    def _remember(self):
        """Who the customers are at a moment after all changes so far, and before every later one."""
        moment = dt.datetime.now(dt.UTC) + _APART
        self._moments.append((moment, dict(self.customers)))
        while dt.datetime.now(dt.UTC) < moment + _APART:
            pass

    def sales(self):
        """The rows of ``kiosk_sales``, by a join of dictionaries."""
        found = []
        for key, order in sorted(self.orders.items()):
            customer = self.customers.get(order["customer_id"])
            if customer:
                article = self.articles.get(order["sku"], {"stock": None, "price": None})
                found.append({"order_id": key, **order, **customer, "customer": customer["name"], **article})
        return found

    def risk(self):
        """The rows of ``kiosk_risk``, by looking up who the customers were."""
        found = []
        for key, order in sorted(self.placed.items()):
            customer = self._customers_at(order["at"]).get(order["customer_id"], {"name": None, "credit": None})
            found.append(
                {"order_id": key, **order, "customer_then": customer["name"], "credit_then": customer["credit"]}
            )
        return found

    def _customers_at(self, time):
        if time == _NEVER:
            return self.customers
        return next((customers for moment, customers in self._moments if moment == time), {})

    def digest(self, view, columns):
        """The digest and number of a view's rows."""
        rows = {"kiosk_sales": self.sales, "kiosk_risk": self.risk}[view]()
        values = {c: [_text(c, row[c]) for row in rows] for c in columns}
        return digest_rows(pa.table(values, schema=arrow_schema(columns)).to_batches())


def _text(column, value):
    return value if value is None or column not in _DIGITS else str(value.quantize(_DIGITS[column]))
