"""A subscription that does nothing, for a command in a process of its own."""

import sqlalchemy as sa

from eventstore import RecordedEvent, subscription
from sample_app.orders import Order


@subscription("order", group="bench_heard")
def heard(event: Order.Placed, recorded: RecordedEvent, tx: sa.Connection) -> None:
    """Hear of an order."""
