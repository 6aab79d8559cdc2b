"""What services of the tests handle and write: payments, and a ledger that shows every handling in its order."""

from __future__ import annotations

import sqlalchemy as sa

from eventstore import Aggregate, event


class Payment(Aggregate):
    @event
    class Received:
        amount: int

    @event
    class Refunded:
        amount: int


class Refund(Aggregate):
    @event
    class Paid:
        amount: int


METADATA = sa.MetaData()
# No unique constraint: whatever is handled twice is here twice.
LEDGER = sa.Table(
    "ledger", METADATA, sa.Column("id", sa.Integer, primary_key=True), sa.Column("amount", sa.Integer, nullable=False)
)


def amounts(engine: sa.Engine) -> list[int]:
    """Every amount booked, in the order of booking."""
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(LEDGER.c.amount).order_by(LEDGER.c.id)))
