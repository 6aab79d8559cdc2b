"""A store in which order o1 waits for its payment, and the compensation of o2 was refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from eventstore import Dispatcher, SqlEventStore
from eventstore.backends.sql.database import Database
from eventstore.processes.engine import ProcessEngine
from eventstore.processes.worker import ProcessWorker
from tests.unit.eventstore.fulfilment import Fulfilment, Item, Order


def fill_with_orders(url: str) -> None:
    """Place o1 ten minutes ago, and o2 two hours before it, so that its payment is late."""
    began = datetime.now(UTC) - timedelta(minutes=10)
    with SqlEventStore(url) as store:
        store.create_tables()
        shop, now = Dispatcher(store), [began - timedelta(hours=2)]
        shop.send("tea", Item.receive, quantity=5)
        engine = ProcessEngine(store, [Fulfilment])
        worker = ProcessWorker(store, [Fulfilment], clock=lambda: now[0])
        for order, moment in (("o2", now[0]), ("o1", began)):
            now[0] = moment
            shop.send(order, Order.place, sku="tea", quantity=1, amount=Decimal(9))
            with Database(store.engine, store.tables).writing() as tx:
                engine.take_events(tx, list(store.read_stream(f"order-{order}")), now=now[0])
            worker.drain()
            if order == "o2":
                shop.send("tea", Item.close)
                now[0] += timedelta(minutes=31)
                worker.drain()
