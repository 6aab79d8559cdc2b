"""payment_risk = payments ⋈ customers as of the payment's time: the score that counted then, whatever it is today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections import Stream, Table, join_versions, view
from sample_app.customers import Customer
from sample_app.payments import Payment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

payments = Stream.from_events(Payment, events=Payment.Received, key="payment_id", time="paid_at")
customer_versions = Table.versions_of(Customer, topic="shop.public.customers")


@view(key="payment_id")
def payment_risk(payments: DataFrame, customer_versions: DataFrame) -> DataFrame:
    """One row a payment; one of a customer that was not known at its time has no score."""
    scored = join_versions(payments, customer_versions, on="customer_id", how="left")
    return scored.select("payment_id", "order_id", "customer_id", "amount", "paid_at", "credit_score")
