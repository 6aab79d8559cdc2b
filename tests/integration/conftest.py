"""Fixtures of the tests that capture from real databases through the session's Kafka Connect."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from sqlalchemy import Engine, create_engine

from cdc import ConnectClient, OutboxSource, PostgresSource, delete_connector, drop_slot, prepare_source, write_secrets
from eventstore import RegistrySettings
from eventstore.errors import TopicMissing
from eventstore.kafka import ConfluentRegistry
from eventstore.kafka.consumer import read_range
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from tests.commands import factfold
from tests.integration.payments_topic import PaymentsTopic
from tests.ledger import METADATA
from tests.waiting import wait_until

if TYPE_CHECKING:
    from typer.testing import Result

    from factfold.stack import LocalStack
    from projections import Environment


@dataclass
class Captured:
    """An empty database of its own, ways to declare connectors on it, and their removal afterwards."""

    stack: LocalStack
    client: ConnectClient
    engine: Engine
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")
    password: str = 'it\'s a \\ "pass" = ü'

    def run(self, *statements: str) -> None:
        """Execute statements in one transaction."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    def slots(self) -> list[str]:
        """Return the names of the database's replication slots."""
        query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        return [row[0] for row in self.rows(query)]

    def source(self, **changes: Any) -> PostgresSource:
        """Declare a source of changelogs on this database."""
        return PostgresSource(**self._fields() | changes)

    def outbox(self, **changes: Any) -> OutboxSource:
        """Declare an outbox on this database's event store."""
        return OutboxSource(**self._fields() | changes)

    def prepared(self, connector: Any) -> Any:
        """Make the role, rights and publication of a connector, and return it."""
        prepare_source(self.engine, connector, password=self.password)
        return connector

    def remove(self) -> None:
        """Remove the connectors made here and their slots."""
        for name in self.client.connectors():
            if name.startswith(self.name):
                delete_connector(self.client, name, forget=True)
        for slot in self.slots():
            drop_slot(self.engine, slot)
        self.engine.dispose()

    def _fields(self) -> dict[str, Any]:
        postgres, secrets = self.stack.info.postgres, self.stack.info.secrets_dir
        references = write_secrets(secrets, self.name, values={"password": self.password})
        return {
            "name": self.name,
            "host": postgres.host,
            "port": postgres.port,
            "database": self.engine.url.database,
            "user": f"{self.name}_cdc",
            "password": references["password"],
            "topic_prefix": self.name,
        }


@pytest.fixture(scope="session")
def settings(stack: LocalStack) -> Settings:
    """Settings of the session's broker."""
    return Settings.for_broker(stack.info.bootstrap_servers)


@pytest.fixture
def payments(settings: Settings) -> PaymentsTopic:
    """A topic of payments with a name of its own."""
    return PaymentsTopic(settings)


@pytest.fixture
def url(database: Callable[[], str]) -> str:
    """The URL of an empty database."""
    return database()


@pytest.fixture
def env(environment: Callable[..., Environment]) -> Environment:
    """A projection environment with an empty database of views."""
    return environment()


@pytest.fixture
def engine(database: Callable[[], str]) -> Iterator[Engine]:
    """The database of a service that keeps a ledger."""
    engine = create_engine(database())
    METADATA.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def captured(stack: LocalStack, connect: ConnectClient) -> Iterator[Callable[..., Captured]]:
    """A function that gives a fresh database to capture from; connectors and slots go with the module.

    It runs the statements that it is given in the new database.
    """
    made: list[Captured] = []

    def create(*statements: str) -> Captured:
        name = f"test_{uuid.uuid4().hex[:12]}"
        admin = create_engine(stack.info.postgres.url(), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        admin.dispose()
        made.append(Captured(stack, connect, create_engine(stack.info.postgres.url(name))))
        made[-1].run(*statements)
        return made[-1]

    yield create
    for one in made:
        one.remove()


@pytest.fixture
def cdc_of(connect: ConnectClient, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[..., Result]]:
    """A function that gives `factfold cdc` for a database, with declarations in the module `declared_here`."""

    def given(database: Captured, **declarations: Any) -> Callable[..., Result]:
        module = type(sys)("declared_here")
        vars(module).update(declarations)
        monkeypatch.setitem(sys.modules, "declared_here", module)
        monkeypatch.setenv("FACTFOLD_CONNECT_URL", connect.url)
        monkeypatch.setenv("FACTFOLD_SOURCE_URL", database.engine.url.render_as_string(hide_password=False))
        return lambda *words: factfold("cdc", *words, catch_exceptions=False)

    return given


@pytest.fixture(scope="session")
def records_of(settings: Settings) -> Callable[..., list[TopicRecord]]:
    """A function that reads a topic, again and again, until it holds so many records."""

    def read(topic: str, *, count: int) -> list[TopicRecord]:
        found: list[TopicRecord] = []

        def are_there() -> bool:
            try:
                found[:] = read_range(settings, topic)
            except TopicMissing:  # a connector makes its topic with the first record
                return False
            return len(found) >= count

        wait_until(are_there, what=lambda: f"{len(found)} of {count} records in {topic}")
        return found

    return read


@pytest.fixture(scope="module")
def registry_url(stack: LocalStack) -> Iterator[str]:
    """The address of a schema registry that runs as long as the module's tests; it keeps what it was told."""
    stack.start("registry")
    yield stack.info.registry_url
    stack.stop("registry")


@pytest.fixture
def registry(registry_url: str) -> Iterator[ConfluentRegistry]:
    """Our client of the registry."""
    with ConfluentRegistry(RegistrySettings(url=registry_url)) as opened:
        yield opened


@pytest.fixture(scope="module")
def foreign(registry_url: str) -> Iterator[SchemaRegistryClient]:
    """Somebody else's client of the registry."""
    with SchemaRegistryClient({"url": registry_url}) as client:
        yield client
