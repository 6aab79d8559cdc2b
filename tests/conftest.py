"""Fixtures shared by all tests: one local stack a process, and fresh databases in it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest
import stamina
import structlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc import ConnectClient
    from factfold.stack import LocalStack
    from projections import Environment
    from projections.stores.sql import TableStore


_COMPLAINS = re.compile(r"\b(WARN|ERROR|FATAL|PANIC)\b")


# They begin first, each in a process of its own.
_LONGEST = ["spark on servers", "servers", "spark"]


def pytest_configure() -> None:
    """Before the first JVM: theirs is half the time of a run."""
    from factfold.stack import start_lightly

    start_lightly()
    os.environ["FACTFOLD_CLASS_ARCHIVE"] = "off"  # a test leaves no process behind


def pytest_collection_finish() -> None:
    """What is collected stays to the end: to look through it again and again took a tenth of a run."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that make faults chooses, and group them for the processes."""
    for item in items:
        if item.path.parent.name == "faults":
            item.add_marker(pytest.mark.kills)
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_begin)


def _begin(item: pytest.Item) -> int:
    group = _group(item)
    return _LONGEST.index(group) if group in _LONGEST else len(_LONGEST)


def _group(item: pytest.Item) -> str:
    """Tests that share servers, or Spark's session, are one group: each is what one process starts once.

    Each file of plain tests is a group of its own. Processes share no servers: a reader of an event store waits for
    every open transaction of its PostgreSQL cluster.
    """
    needed, folder = _fixtures(item), item.path.parent.name
    if "spark" in needed:
        return "spark" if folder == "spark" else "spark on servers"
    if "postgres" in needed or folder == "conformance":  # their fixtures ask for it when they run
        return "servers"
    return item.nodeid.partition("::")[0]


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the servers complained of: their logs go with the stack."""
    report = yield
    running = getattr(item, "funcargs", {}).get("postgres")
    if report.failed and running is not None and report.when != "teardown":  # which may have removed the stack
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
def postgres() -> Iterator[LocalStack]:
    """A stack of PostgreSQL alone, started once a process and removed with its data at the end."""
    from factfold.stack import LocalStack

    running = LocalStack(f"tests-{os.getpid()}", ephemeral=True)
    running.up(["postgres"])
    yield running
    running.down()


@pytest.fixture(scope="session")
def stack(postgres: LocalStack) -> LocalStack:
    """The same stack with Kafka."""
    postgres.up(["kafka"])
    return postgres


@pytest.fixture(scope="session")
def connect(stack: LocalStack) -> Iterator[ConnectClient]:
    """A client of the stack's Kafka Connect, which starts with the first test that asks for it."""
    from cdc import ConnectClient

    stack.up(["connect"])
    with ConnectClient(stack.info.connect_url) as client:
        yield client


@pytest.fixture(autouse=True)
def process_stays() -> Iterator[None]:
    """Give SIGINT, SIGTERM and the logs back what they did before: a command that is run in this process takes them."""
    taken = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in taken.items():
        signal.signal(number, handler)
    structlog.reset_defaults()
    stamina.instrumentation.set_on_retry_hooks(None)  # the default ones: a demonstration takes them off


@pytest.fixture
def connectors_go(connect: ConnectClient) -> Iterator[None]:
    """Delete every connector after the test."""
    from tests.connectors import delete_connectors

    yield
    delete_connectors(connect)


@pytest.fixture
def database(postgres: LocalStack) -> Iterator[Callable[[], str]]:
    """A function that creates an empty database and returns its SQLAlchemy URL (psycopg, superuser).

    What still works in it at the end is ended: readers of the next test would wait for its transaction.
    """
    import sqlalchemy

    names: list[str] = []
    without_pool = sqlalchemy.pool.NullPool  # a test may stop and start the server
    url = postgres.info.postgres.url()
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=without_pool)

    def create() -> str:
        names.append(f"test_{uuid.uuid4().hex[:12]}")
        with engine.connect() as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{names[-1]}"')
        return postgres.info.postgres.url(names[-1])

    yield create
    still = sqlalchemy.text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY(:names) AND state <> 'idle'"
    )
    with engine.connect() as connection:
        connection.execute(still, {"names": names})


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
    from projections.stores.postgres import PostgresTableStore

    opened: list[TableStore] = []

    def create(store: TableStore | None = None) -> Environment:
        store = store or PostgresTableStore(database())
        opened.append(store)
        store.prepare()
        log = KafkaLog(Settings.for_broker(stack.info.bootstrap_servers))
        return Environment(spark, small_batch_session(spark), store, log)

    yield create
    for store in opened:
        store.close()
