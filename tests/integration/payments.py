"""Payments of customers whose credit score changes: a stream, and the versions of a table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import sqlalchemy as sa

from eventstore import Aggregate, event
from projections import Stream, join_versions, view


class Payment(Aggregate):
    """A payment of at most one customer."""

    @event
    class Received:
        customer_id: int | None
        amount: Decimal
        paid_at: dt.datetime | None

    @event
    class Refused:
        reason: str


CUSTOMERS = sa.Table(
    "customers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("credit_score", sa.Integer),
    sa.Column("note", sa.Text),
)  # fmt: skip


def moment(minute: int) -> dt.datetime:
    """A time of the tests."""
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)


def micros(minute: int) -> int:
    """The same in microseconds since 1970."""
    return int(moment(minute).timestamp()) * 1_000_000


def received(topic: str | None = None):
    """One row a payment, at the time it was paid."""
    return Stream.from_events(Payment, events=Payment.Received, key="payment_id", time="paid_at", topic=topic)


def entries_of(topic: str | None = None):
    """One row an event, at the time it was recorded."""
    events = [Payment.Received, Payment.Refused]
    return Stream.from_events(
        Payment, events=events, key="entry", id="payment_id", columns=["customer_id", "reason"], topic=topic
    )


def risk_view(payments, customer_versions, *, how):
    """Payments with the score at their time."""

    @view(
        key="payment_id",
        tables={"payments": payments, "customer_versions": customer_versions},
    )
    def payment_risk(payments, customer_versions):
        joined = join_versions(payments, customer_versions, on="customer_id", how=how)
        return joined.select("payment_id", "amount", "credit_score", "note")

    return payment_risk
