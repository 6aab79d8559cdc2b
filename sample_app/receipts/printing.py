"""The service that prints receipts, on a printer that can be made to jam: dead letters are shown by it."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from eventstore import Subscription, subscription
from sample_app.payments import Payment

_MOMENT = timedelta(seconds=0.5)
TOPIC, GROUP = "payment.validated", "receipts"

metadata = sa.MetaData()
receipts = sa.Table(
    "receipts",
    metadata,
    sa.Column("order_id", sa.Text, primary_key=True),
    sa.Column("amount", sa.Numeric(12, 2), nullable=False),
)


class PrinterJammed(Exception):
    """The printer does not print."""


class Receipts:
    """Prints receipts in a database of its own; the name of customer ``jams_at`` jams the printer until `repair`."""

    def __init__(self, *, database: sa.Engine, jams_at: int) -> None:
        self._database, self._jams_at = database, jams_at
        metadata.create_all(database)

    def subscription(self) -> Subscription[..., None]:
        """The handler of payments that are not suspicious: one attempt, another one after a moment, and no more."""

        # The retry topic is there from the beginning, so a letter that is sent back is seen at once.
        @subscription(TOPIC, group=GROUP, retry=(_MOMENT,))
        def receipt(event: Payment.Received, tx: sa.Connection) -> None:
            if event.customer_id == self._jams_at:
                raise PrinterJammed(f"paper jam at order {event.order_id!r}")
            tx.execute(sa.insert(receipts), {"order_id": event.order_id, "amount": event.amount})

        return receipt

    def repair(self) -> None:
        """Take the paper out."""
        self._jams_at = 0

    def printed(self) -> int:
        """How many receipts there are."""
        with self._database.connect() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(receipts)).scalar_one()
