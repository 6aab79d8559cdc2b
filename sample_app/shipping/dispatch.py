"""The shipping service: hands over the parcel of an order that was shipped."""

from __future__ import annotations

import sqlalchemy as sa

from eventstore import RecordedEvent, Subscription, subscription
from sample_app.orders import Order

metadata = sa.MetaData()
parcels = sa.Table(
    "parcels",
    metadata,
    sa.Column("order_id", sa.Text, primary_key=True),
    sa.Column("carrier", sa.Text, nullable=False),
)


def shipping(*, database: sa.Engine) -> Subscription[..., None]:
    """The handler of shipped orders; parcels go to a database of its own."""
    metadata.create_all(database)

    @subscription("order", group="shipping")
    def shipped(event: Order.Shipped, recorded: RecordedEvent, tx: sa.Connection) -> None:
        parcel = {"order_id": recorded.stream.removeprefix("order-"), "carrier": event.carrier}
        tx.execute(sa.insert(parcels), parcel)

    return shipped
