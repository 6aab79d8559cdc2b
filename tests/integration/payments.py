"""Payments of customers whose credit score changes: a stream, and the versions of a table."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import sqlalchemy as sa

from eventstore import Aggregate, event
from projections import ProjectionGroup, Stream, Table, as_of, view
from tests.integration.log_writer import LogWriter


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
        references={"customer_id": customer_versions},
    )
    def payment_risk(payments, customer_versions):
        joined = as_of(payments, customer_versions, on="customer_id", how=how)
        return joined.select("payment_id", "amount", "credit_score", "note")

    return payment_risk


def payment_group(writer: LogWriter) -> ProjectionGroup:
    """Payments with the score at their time, inner; events with the score then and the note now, left."""
    payments, entries = received(writer.events_topic), entries_of(writer.events_topic)
    versions = Table.versions_of(CUSTOMERS, topic=writer.changes_topics["customers"])
    customers = Table.from_changelog(CUSTOMERS, topic=writer.changes_topics["customers"])

    @view(
        key="payment_id",
        tables={"payments": payments, "versions": versions},
        references={"customer_id": versions},
    )
    def risk_inner(payments, versions):
        return as_of(payments, versions, on="customer_id").select("payment_id", "amount", "credit_score", "note")

    @view(
        key="entry",
        tables={"entries": entries, "versions": versions, "customers": customers},
        references={"customer_id": versions, "entries.customer_id": customers},
    )
    def entry_scores(entries, versions, customers):
        now = customers.select(customers.id.alias("customer_id"), customers.note.alias("note_now"))
        then = as_of(entries, versions, on="customer_id", how="left", take={"score": "credit_score"})
        return then.join(now, "customer_id", "left").select("entry", "payment_id", "reason", "score", "note_now")

    suffix = writer.events_topic.rpartition(".")[2]
    return ProjectionGroup(f"payments_{suffix}", [risk_inner, entry_scores])
