"""The shipping service: a validated payment ships its order, and so does the release of one that was held."""

from __future__ import annotations

import sqlalchemy as sa

from eventstore import Accepted, Dispatcher, RecordedEvent, Subscription, subscription
from sample_app.orders import Order
from sample_app.payments import Payment

metadata = sa.MetaData()
parcels = sa.Table(
    "parcels",
    metadata,
    sa.Column("order_id", sa.Text, primary_key=True),
    sa.Column("outcome", sa.Text, nullable=False),  # shipped, or why not
)


def shipping(orders: Dispatcher, *, database: sa.Engine) -> tuple[Subscription[..., None], ...]:
    """The handlers of validated payments and of released orders; parcels go to a database of its own."""
    metadata.create_all(database)

    def send(order_id: str, cause: RecordedEvent, tx: sa.Connection) -> None:
        shipped = orders.with_metadata(cause.caused()).send(order_id, Order.ship, carrier="Post")
        outcome = "shipped" if isinstance(shipped, Accepted) else shipped.reason
        tx.execute(sa.insert(parcels), {"order_id": order_id, "outcome": outcome})

    @subscription("payment.validated", group="shipping")
    def paid(event: Payment.Received, recorded: RecordedEvent, tx: sa.Connection) -> None:
        send(event.order_id, recorded, tx)

    @subscription("order", group="shipping-released")
    def released(event: Order.Released, recorded: RecordedEvent, tx: sa.Connection) -> None:
        send(recorded.stream.removeprefix("order-"), recorded, tx)

    return paid, released
