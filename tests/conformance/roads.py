"""The two roads from a command to a view: everything in one SQLite file, or PostgreSQL, Debezium and Kafka."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from cdc import capture_table
from eventstore import SqlEventStore, Subscriber, Subscription, open_subscriber
from eventstore.kafka.consumer import read_schemas
from projections import Environment, branch_source
from projections.spark.session import small_batch_session
from tests.conformance.kiosk import CUSTOMERS, METADATA, KioskArticle, KioskOrder, customers, order_branches
from tests.connectors import delete_connectors


@dataclass(frozen=True)
class Road:
    """Where commands go in, and views and branches come out.

    ``wait_until_captured`` returns once the log has what is committed; ``subscriber`` delivers a branch of orders.
    """

    store: SqlEventStore
    environment: Environment
    wait_until_captured: Callable[[], None]
    subscriber: Callable[[Subscription[..., None]], AbstractContextManager[Subscriber]]


@contextmanager
def embedded_road(spark, folder):
    """No server at all."""
    from projections.spark.reading.store_source import StoreLog
    from projections.stores.sqlite import SqliteTableStore

    path = folder / "kiosk.db"
    with SqlEventStore(f"sqlite:///{path}") as store:
        store.create_tables()
        store.register(KioskOrder, KioskArticle)
        METADATA.create_all(store.engine)
        capture_table(store.engine, CUSTOMERS, topic=customers.topic)
        with closing(SqliteTableStore(path)) as tables:
            tables.prepare()
            environment = Environment(spark, small_batch_session(spark), tables, StoreLog(tables.path))
            yield Road(store, environment, lambda: None, partial(_reading_the_store, store))


def _reading_the_store(store, chosen):
    return Subscriber(chosen, branch_source(store, chosen, order_branches), engine=store.engine)


@contextmanager
def server_road(spark, stack, connect):
    """PostgreSQL, two connectors, Kafka, PostgreSQL."""
    from projections.spark.reading.kafka_source import KafkaLog
    from projections.stores.postgres import PostgresTableStore
    from sample_app.road import lay_road

    with ExitStack() as opened:
        opened.callback(delete_connectors, connect)
        road = lay_road(
            stack.info, "kiosk", aggregates=[KioskOrder, KioskArticle], tables=METADATA, history=[CUSTOMERS.name]
        )
        opened.callback(road.close)
        tables = opened.enter_context(closing(PostgresTableStore(road.views_url)))
        tables.prepare()
        environment = Environment(spark, small_batch_session(spark), tables, KafkaLog(road.settings))
        yield Road(road.store, environment, road.wait_until_captured, partial(_behind_a_router, road, spark))


@contextmanager
def _behind_a_router(road, spark, chosen):
    """Micro-batches in the session of the tests: real-time mode wants one of its own, and has tests of its own."""
    from projections.branching.router import make_topics, source_partitions
    from projections.spark.routing import QueryPlace, Routing, RoutingQuery

    make_topics(road.settings, order_branches, partitions=source_partitions(road.settings, order_branches))
    routing = Routing(order_branches, read_schemas(road.settings))
    with TemporaryDirectory() as folder, open_subscriber(chosen, settings=road.settings, engine=road.engine) as opened:
        place = QueryPlace(road.settings.kafka.jvm(), Path(folder), "beginning", "micro-batch", 5)
        query = RoutingQuery(spark, routing, place)
        try:
            yield opened
        finally:
            query.stop()
