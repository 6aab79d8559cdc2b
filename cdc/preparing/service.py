"""A service from an empty database to running connectors, in steps that can be repeated."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.connectors.postgres import OutboxSource
from cdc.connectors.postgres_connector import PostgresConnector
from cdc.errors import InvalidConnector
from cdc.operating.control import TIMEOUT, apply_connector, wait_for_worker
from cdc.operating.planning import plan_connectors, require_own_topics, stores_of, topic_specs
from cdc.operating.rotation import first_of_each
from cdc.preparing.steps import (
    ConnectorLogin,
    PreparedStep,
    Step,
    categories_step,
    database_step,
    password_step,
    rights_step,
    role_step,
    run_steps,
    store_step,
    tables_step,
)
from cdc.source.catalogue import not_of
from eventstore.topics import DEFAULT_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pydantic import SecretStr
    from sqlalchemy import Engine, MetaData

    from cdc.connect.client import ConnectClient
    from cdc.connectors.declared import Connector
    from eventstore import Aggregate, SqlEventStore
    from eventstore.settings import Settings
    from eventstore.topics import TopicSpec

_ACTIONS = {
    "create": "a new connector",
    "change": "another configuration",
    "restart": "a restart, because it FAILED",
    "resume": "to go on, because it is paused or stopped",
}


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a service needs before it runs. `prepare_service` makes it.

    Args:
        connectors: The service's connectors. Those of another database than ``source`` get topics and are applied.
        source: The service's database, as the owner of its tables.
        worker: A client of Kafka Connect.
        settings: The settings of Kafka.
        admin: A superuser of the server. With it, roles and databases that are missing are created.
        databases: Further databases of the service on that server, such as that of its views.
        store: The service's event store in ``source``. By default that of the outbox connector.
        aggregates: Aggregates whose categories and schemas the store is to know, and whose topics are created. They
            get as many partitions as the outbox connector says.
        tables: The service's own tables, as MetaData of SQLAlchemy.
        secrets_dir: The folder of the worker's secrets file as this machine sees it, if the references of the
            connectors name another.
        password: Is asked for the password of a connector's role. By default a new role gets a generated one.
        timeout: Seconds for each connector.

    Examples:
        >>> connectors, worker = load_connectors("connectors.toml"), ConnectClient("http://connect:8083")
        >>> service = Service(connectors=connectors, source=engine, worker=worker, settings=Settings())
    """

    connectors: Sequence[Connector]
    source: Engine
    worker: ConnectClient
    settings: Settings
    admin: Engine | None = None
    databases: Sequence[Engine] = ()
    store: SqlEventStore | None = None
    aggregates: Sequence[type[Aggregate]] = ()
    tables: Sequence[MetaData] = ()
    secrets_dir: Path | None = None
    password: Callable[[str], str | SecretStr] | None = None
    timeout: float = TIMEOUT


def prepare_service(
    service: Service, *, dry_run: bool = False, on_step: Callable[[PreparedStep], object] = lambda step: None
) -> tuple[PreparedStep, ...]:
    """Make what a service lacks, up to running connectors. What is present stays as it is.

    Args:
        service: What the service needs.
        dry_run: Look, and change nothing.
        on_step: Is called after each step, also after one that failed.

    Returns:
        The steps in their order.

    Raises:
        SourceNotReady: A right, a table or a setting is missing. The step's `sql` is for a role that may.
        TopicMismatch: A topic has other partitions or another policy.
        FactfoldError: Another step failed. A dry run raises nothing, and its steps carry their errors.

    Examples:
        >>> service = cdc.Service(
        ...     connectors=cdc.load_connectors("connectors.toml"), source=engine, worker=client, settings=Settings()
        ... )
        >>> cdc.prepare_service(service, on_step=print)
    """
    with ExitStack() as opened:
        return run_steps(list(_steps(service, opened)), on_step=on_step, dry_run=dry_run)


def _steps(service: Service, opened: ExitStack) -> Iterator[Step]:
    own = [one for one in service.connectors if isinstance(one, PostgresConnector) and _reads(one, service.source)]
    yield from _of_databases(service)
    yield from _of_store(service, [one for one in own if isinstance(one, OutboxSource)])
    logins = [ConnectorLogin(one, service.source, service.secrets_dir, service.password) for one in own]
    # The connectors of a service share a role, and with it the place of its password.
    yield from map(password_step, first_of_each(logins, lambda login: login.file or login.connector.name))
    by = _as_admin(service, opened)
    yield from (rights_step(login, by=by) for login in logins)
    for one in service.connectors:
        source = service.source if one in own else None
        yield topics_step(service, one, source)
        yield connector_step(service, one, source)


def _of_databases(service: Service) -> Iterator[Step]:
    engines = (service.source, *service.databases)
    if service.admin is not None:
        for engine in first_of_each(engines, lambda one: one.url.username):
            yield role_step(engine.url, admin=service.admin)
    for engine in first_of_each(engines, lambda one: one.url.database):
        yield database_step(engine, admin=service.admin)


def _of_store(service: Service, outboxes: Sequence[OutboxSource]) -> Iterator[Step]:
    stores = [service.store] if service.store is not None else []
    stores = stores or [store for outbox in outboxes for store in stores_of(service.source, outbox)]
    yield from map(store_step, stores)
    yield from (tables_step(service.source, tables) for tables in service.tables)
    if service.aggregates:
        _require_outbox(stores)
        partitions = outboxes[0].partitions if outboxes else DEFAULT_PARTITIONS
        yield categories_step(stores[0], service.aggregates, partitions=partitions)


def _require_outbox(stores: Sequence[SqlEventStore]) -> None:
    if not stores:
        raise InvalidConnector(
            "aggregates are given, and no connector of the source publishes their events",
            remedy='declare an outbox connector (type = "outbox"), or give no aggregates',
        )


def _reads(connector: PostgresConnector, source: Engine) -> bool:
    return not_of(source, connector.config()) is None


def _as_admin(service: Service, opened: ExitStack) -> Engine:
    """The administrator in the service's database; the service itself without one."""
    if service.admin is None:
        return service.source
    from eventstore.backends.sql.engines import engine_for  # SQLAlchemy is loaded when it is first used

    engine = engine_for(service.admin.url.set(database=service.source.url.database))
    opened.callback(engine.dispose)
    return engine


def topics_step(service: Service, connector: Connector, source: Engine | None) -> Step:
    """The topics of a connector: those it names, and for an outbox those of the store's categories."""
    from eventstore.kafka.admin import compare_topics, ensure_topics  # needs the extra kafka

    def specs() -> list[TopicSpec]:
        if source is None or not isinstance(connector, OutboxSource):
            return list(connector.topic_specs)
        categories = (one for store in stores_of(source, connector) for one in store.categories())
        return topic_specs((one.topic, one.partitions) for one in categories)

    def look() -> str:
        if source is not None:
            require_own_topics(service.settings, connector, source)
        compared = compare_topics(service.settings, specs())
        for mismatch in compared.mismatches:
            raise mismatch
        return ", ".join(compared.missing)

    return Step("topics", connector.name, look, lambda: ensure_topics(service.settings, specs()))


def connector_step(service: Service, connector: Connector, source: Engine | None) -> Step:
    """A connector as it is declared, running and streaming."""
    worker, timeout = service.worker, service.timeout

    def look() -> str:
        wait_for_worker(worker, timeout=timeout)
        planned, *_ = plan_connectors(worker, [connector])
        return "" if planned.is_no_op else _ACTIONS[planned.action]

    def make() -> None:
        apply_connector(worker, connector, source=source, settings=service.settings, timeout=timeout)

    return Step("connector", connector.name, look, make)
