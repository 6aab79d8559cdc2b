"""Transfers, their two branches, and a service on each: what is killed runs from here."""

from __future__ import annotations

import sqlalchemy as sa

from eventstore import subscription
from projections import branches, field
from tests.ledger import Payment

SUSPICIOUS_FROM = 1_000_000
transfer_branches = branches(
    Payment, {"suspicious": field("amount") >= SUSPICIOUS_FROM}, otherwise="validated", topic="transfer"
)

METADATA = sa.MetaData()
# No unique constraint: whatever is handled twice is here twice.
HANDLED = sa.Table(
    "handled",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("service", sa.Text, nullable=False),
    sa.Column("amount", sa.Integer, nullable=False),
)


@subscription("transfer.suspicious", group="transfer-fraud", batch=100)
def review(event: Payment.Received, tx: sa.Connection) -> None:
    """Fraud remediation."""
    tx.execute(sa.insert(HANDLED).values(service="fraud", amount=event.amount))


@subscription("transfer.validated", group="transfer-shipping", batch=100)
def ship(event: Payment.Received, tx: sa.Connection) -> None:
    """Shipping."""
    tx.execute(sa.insert(HANDLED).values(service="shipping", amount=event.amount))
