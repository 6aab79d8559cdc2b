"""Fixtures shared by all tests: one local stack a session, and fresh databases in it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from factfold.stack import LocalStack
    from projections import Environment
    from projections.tablestore.sql import SqlTableStore


# What each process of `make test` runs: the first part with a pattern that fits a file, "rest" where none does. The
# second needs no Spark of its own. They take as long as each other.
_PARTS = {
    "rest": (
        "*/test_cdc_avro.py", "*/test_cdc_transactions.py", "*/test_cogrouping.py",
        "*/test_partial_aggregates.py", "*/test_personal_views.py", "*/test_projections_live.py",
        "*/test_schema_registry.py",
    ),
    "servers": (
        "tests/unit/*", "tests/architecture/*", "*/test_cdc_*", "*/test_erasure_*", "*/test_eventstore_*",
        "tests/integration/test_relay*", "*/test_schema_registry*", "*/test_subscriptions*",
        "*/test_appends_contended.py", "*/test_broker_killed.py", "*/test_doctor_topics.py", "*/test_generations.py",
        "*/test_hostile_names.py", "*/test_loads.py", "*/test_open_transactions.py", "*/test_personal_topics.py",
        "*/test_view_topic_generations.py",
    ),
    "integration": (
        "tests/integration/*", "*/test_filtered_tables.py", "*/test_generated_views.py", "*/test_lakehouse_writes.py",
    ),
    "conformance": ("tests/conformance/*", "tests/spark/*"),
}  # fmt: skip
_COMPLAINS = re.compile(r"\b(WARN|ERROR|FATAL|PANIC)\b")


def pytest_configure() -> None:
    """Before the first JVM: theirs is half the time of a run."""
    from factfold.stack import start_lightly

    start_lightly()


def pytest_collection_finish() -> None:
    """What is collected stays to the end: to look through it again and again took a tenth of a run."""
    gc.collect()
    gc.freeze()


class Parts(LoadScopeScheduling):
    """Each process has its own part of the tests, so that it starts its servers and its Spark once.

    Servers are not shared: tests stop brokers, delete all connectors, and hold transactions open that every reader of
    a cluster waits for. Four processes for two cores: tests wait for servers a third of their time.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        fitting = (part for part, files in _PARTS.items() if any(fnmatchcase(file, each) for each in files))
        return next(fitting, "rest")

    def remove_node(self, node: Any) -> str | None:
        """What a process died of is not run again: its successor goes on behind it."""
        units = self.assigned_work[node].values()
        left = ((tests, name) for tests in units for name, done in tests.items() if not done)
        tests, crashed = next(left, ({}, None))
        if crashed is not None:
            tests[crashed] = True
        super().remove_node(node)
        return crashed


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Parts:
    """The processes of `make test` share the work."""
    return Parts(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the servers complained of: their logs go with the stack."""
    report = yield
    running = getattr(item, "funcargs", {}).get("stack")
    if report.failed and running is not None:
        for log in sorted((running.info.folder / "logs").glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-3_000:]
            report.sections.append((log.name, "\n".join([line for line in lines if _COMPLAINS.search(line)][-30:])))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine function runs on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def stack() -> Iterator[LocalStack]:
    """PostgreSQL, Kafka and Kafka Connect, started once a process and removed with their data at the end."""

    from factfold.stack import LocalStack

    with LocalStack(f"tests-{os.getpid()}", ephemeral=True) as running:
        yield running


@pytest.fixture(autouse=True)
def process_stays() -> Iterator[None]:
    """Give SIGINT, SIGTERM and the logs back what they did before: a command that is run in this process takes them."""
    taken = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in taken.items():
        signal.signal(number, handler)
    structlog.reset_defaults()


@pytest.fixture
def connectors_go(stack: LocalStack) -> Iterator[None]:
    """Delete every connector after the test."""
    from tests.connectors import delete_connectors

    yield
    delete_connectors(stack)


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
    """The one Spark session of the process."""
    from factfold.stack import delta_jars, spark_jars
    from projections.spark.session import open_session

    session = open_session([*spark_jars(), *delta_jars()], memory="2g")
    yield session
    session.stop()


@pytest.fixture
def environment(
    stack: LocalStack, spark: SparkSession, database: Callable[[], str]
) -> Iterator[Callable[..., Environment]]:
    """A function that gives a projection environment with an empty database of views, or with the store it is given."""
    from eventstore import Settings
    from projections import Environment
    from projections.spark.reading.kafka_source import KafkaLog
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
