"""Fixtures shared by all tests: one local stack a session, and fresh databases in it."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from factfold.stack import LocalStack
    from projections import Environment
    from projections.tablestore.sql import SqlTableStore


def pytest_configure() -> None:
    """Before the first JVM: theirs is half the time of a run."""
    from factfold.stack import start_lightly

    start_lightly()


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """PostgreSQL, Kafka and Kafka Connect, started once and removed with their data at the end."""

    from factfold.stack import LocalStack

    with LocalStack(f"tests-{os.getpid()}", ephemeral=True) as running:
        yield running


@pytest.fixture(autouse=True)
def signals_stay() -> Iterator[None]:
    """Give SIGINT and SIGTERM back what they did before: a command that is run in this process takes them."""
    taken = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in taken.items():
        signal.signal(number, handler)


@pytest.fixture
def connectors_go(stack: LocalStack) -> Iterator[None]:
    """Delete every connector after the test: one that idles takes a tenth of a core from the tests that follow."""
    from cdc import ConnectClient

    yield
    with ConnectClient(stack.info.connect_url) as client:
        for name in client.connectors():
            client.delete(name)


@pytest.fixture
def database(stack: LocalStack) -> Callable[[], str]:
    """A function that creates an empty database and returns its SQLAlchemy URL (psycopg, superuser)."""
    import sqlalchemy

    def create() -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        engine = sqlalchemy.create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{name}"')
        engine.dispose()
        return stack.info.postgres.url(name)

    return create


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the test session."""
    from factfold.stack import spark_jars
    from projections.spark.session import open_session

    session = open_session(spark_jars(), memory="2g")
    yield session
    session.stop()


@pytest.fixture
def environment(
    stack: LocalStack, spark: SparkSession, database: Callable[[], str]
) -> Iterator[Callable[..., Environment]]:
    """A function that gives a projection environment with an empty database of views, or with the store it is given."""
    from eventstore import Settings
    from projections import Environment
    from projections.spark.kafka_source import KafkaLog
    from projections.spark.session import small_batch_session
    from projections.tablestore.postgres import PostgresTableStore

    opened: list[SqlTableStore] = []

    def create(store: SqlTableStore | None = None) -> Environment:
        store = store or PostgresTableStore(database())
        opened.append(store)
        store.prepare()
        log = KafkaLog(Settings.for_broker(stack.info.bootstrap_servers))
        return Environment(spark, small_batch_session(spark), store, log)

    yield create
    for store in opened:
        store.close()
