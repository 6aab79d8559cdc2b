"""Histories of prices and payments, those who write what they are of, and what they must show."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from eventstore.event_types import event_type_of
from projections import Environment, ProjectionGroup, Table, history, on, rebuild
from projections.spark.exchange import fetched
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.testing.memory_log import MemoryLog
from tests.conformance.history_oracle import MINUTE, event_history_of, history_of, in_order
from tests.integration.payments import Payment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PRICES = sa.Table(
    "prices", sa.MetaData(), sa.Column("shop", sa.BigInteger, primary_key=True),
    sa.Column("sku", sa.Text, primary_key=True), sa.Column("price", sa.BigInteger),
)  # fmt: skip
prices = Table.from_changelog(PRICES, topic="shop.public.prices")
price_history = history("price_history", prices)
recent_prices = history("recent_prices", prices, keep="2 minutes", named="known")
GROUP = ProjectionGroup("histories", [price_history, recent_prices])

payments = Table.from_events(
    Payment,
    key="payment_id",
    columns={
        "amount": on(Payment.Received).take("amount"),
        "customer": on(Payment.Received).take("customer_id"),
        "reason": [on(Payment.Refused).take("reason"), on(Payment.Received).set("")],
    },
)
payment_history = history("payment_history", payments)
ALL = ProjectionGroup("all_histories", [price_history, recent_prices, payment_history])
REGISTRY = {kind.schema_id: kind.registered for kind in Payment.event_types.values()}


def write(log, change):
    """A change of one row, as a connector writes it."""
    key = json.dumps({"shop": change["shop"], "sku": change["sku"]}, separators=(",", ":")).encode()
    op = "d" if change["price"] is None else "r" if change["snapshot"] else "u"
    after = None if op == "d" else {c: change[c] for c in ("shop", "sku", "price")}
    source = {
        "lsn": change["lsn"], "snapshot": "true" if op == "r" else "false", "ts_us": change["minute"] * MINUTE,
    }  # fmt: skip
    value = json.dumps({"op": op, "before": None, "after": after, "source": source}).encode()
    for _ in range(change["times"]):
        log.append(prices.topic, key, value)


def expected(log):
    records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(prices.topic))]
    return {"price_history": history_of(records), "recent_prices": history_of(records, keep=2 * MINUTE)}


def stored(store, layout, names):
    return {name: spans(fetched(store.target(layout.views[name].view), layout.views[name].columns)) for name in names}


def spans(rows):
    """Rows of a history as `history_oracle` has them."""
    found = []
    for row in rows.to_pylist():
        assert row.pop("is_current") == (list(row.values())[-1] is None)
        *_, (start, since), (end, until) = row.items()
        values = {c: v for c, v in row.items() if c not in (start, end)}
        found.append(
            (values, *(None if t is None else (t - EPOCH) // timedelta(microseconds=1) for t in (since, until)))
        )
    return in_order(found)


class Ledger:
    """Histories in a store, kept by Spark, and those who write what they are of."""

    def __init__(self, spark, store):
        self.environment = Environment(spark, small_batch_session(spark), store, MemoryLog(REGISTRY))
        self.log, self.store = self.environment.log, store
        self.times = {}
        rebuild(self.environment, ALL)
        self.layout = store.serving(ALL, view_columns(spark, ALL))[1]

    def record(self, payment, version, event, minute):
        key = f"payment-{payment}@{version}"
        value = None if event is None else event_type_of(event).encode(event)
        self.times.setdefault(key, minute * MINUTE)
        self.log.append("payment", key.encode(), value, time=EPOCH + timedelta(minutes=minute))

    def rows(self, *names):
        return stored(self.store, self.layout, names or [view.name for view in ALL.views])

    def expected(self):
        return {**expected(self.log), "payment_history": self.payments()}

    def payments(self):
        records = [(n, key.decode(), value) for n, (key, value) in enumerate(self.log.records("payment"))]
        rows = event_history_of(payments, records, self.times, registry=REGISTRY)
        return in_order([({**row, "amount": as_text(row["amount"])}, *times) for row, *times in rows])

    def check(self, after):
        right, found = self.expected(), self.rows()
        wrong = {name: (rows, right[name]) for name, rows in found.items() if rows != right[name]}
        assert not wrong, f"after {after}: {wrong}"


def as_text(amount):
    return None if amount is None else f"{amount:.4f}"


def random_change(chance, lsn):
    return {
        "shop": chance.randrange(2), "sku": chance.choice("ab"), "lsn": lsn - chance.choice([0, 0, 0, 23, 46]),
        "price": chance.choice([None, 1, 2, 3]), "minute": chance.randrange(7), "snapshot": chance.random() < 0.2,
        "times": chance.randint(1, 2),
    }  # fmt: skip


def minutes(count):
    return EPOCH + timedelta(minutes=count)


def change_of(price, *, at):
    return {"shop": 1, "sku": "a", "lsn": 1_000 + price, "price": price, "minute": at, "snapshot": False, "times": 1}
