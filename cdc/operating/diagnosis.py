"""What keeps a connector from working, or soon may: its source, slot, worker and topics, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cdc.comparing.report import CapturedModel
from cdc.comparing.source_table import model_findings
from cdc.connect.failures import remedy_for, short_message
from cdc.connect.status import ConnectorStatus, is_well
from cdc.connectors.declared import Connector
from cdc.connectors.postgres import OutboxSource, PostgresSource
from cdc.connectors.postgres_connector import PostgresConnector
from cdc.errors import CdcError, UnknownConnector
from cdc.findings import Finding
from cdc.operating.control import failure_of, not_ready
from cdc.operating.planning import differences, stores_of
from cdc.operating.supervisor import committed_offsets
from cdc.source.captured_columns import advice_on
from cdc.source.catalogue import typed_errors
from cdc.source.source_health import slot_findings, source_findings
from eventstore.errors import FactfoldError
from eventstore.topics import TopicSpec, event_topic

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient
    from eventstore import SqlEventStore
    from eventstore.settings import Settings


def diagnose_connector(
    connector: Connector,
    *,
    source: Engine | None = None,
    client: ConnectClient | None = None,
    settings: Settings | None = None,
    models: Sequence[CapturedModel] = (),
) -> tuple[Finding, ...]:
    """Check a connector from every side that is given, and change nothing. A side that does not answer is a finding.

    Args:
        connector: The declaration.
        source: An engine of its database (PostgreSQL).
        client: The worker.
        settings: The settings of the brokers. The topics of an outbox are read from its database.
        models: Models that projection groups declare over the topics. Their columns are compared with the source's.

    Returns:
        Findings with `severity`, `check`, `result` and `remedy`.

    Examples:
        >>> findings = diagnose_connector(rows, source=engine, client=client, settings=settings)
        >>> [finding.result for finding in findings if finding.severity is Severity.ERROR]
        []
    """
    findings: list[Finding] = []
    read_to = 0
    if client is not None:
        findings += _asked("worker", _worker_findings(client, connector))
        read_to = _read_to(client, connector.name)
    if source is not None and isinstance(connector, PostgresConnector):
        findings += _asked("source", _source_findings(source, connector, read_to=read_to))
        if isinstance(connector, PostgresSource) and models:
            findings += _asked("models", _model_findings(source, connector, models))
    else:
        findings.append(Finding.ok("source", f"not looked at: {_why_not(connector)}"))
    if settings is not None:
        findings += _asked("topics", _topic_findings(settings, connector, source=source))
    return tuple(findings)


def _why_not(connector: Connector) -> str:
    if isinstance(connector, PostgresConnector):
        return "the URL of its database was not given (--source-url)"
    return "Factfold looks into databases of PostgreSQL only; what others need is in the how-to page declare-connectors"


def _asked(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except FactfoldError as error:
        yield Finding.error(check, error.message, error.remedy)


def _source_findings(source: Engine, connector: PostgresConnector, *, read_to: int) -> Iterator[Finding]:
    with typed_errors(source), source.connect() as connection:
        yield from source_findings(connection, connector)
        yield from slot_findings(connection, connector, read_to=read_to)


def _model_findings(source: Engine, connector: PostgresSource, models: Sequence[CapturedModel]) -> Iterator[Finding]:
    with typed_errors(source), source.connect() as connection:
        yield from model_findings(connection, connector, models)


def _read_to(client: ConnectClient, name: str) -> int:
    try:
        return max((offset.lsn for offset in committed_offsets(client, name)), default=0)
    except CdcError:
        return 0


def _worker_findings(client: ConnectClient, connector: Connector) -> Iterator[Finding]:
    health = client.health()
    if not health.healthy:
        raise not_ready(client, health)
    yield Finding.ok("worker", f"{client.url} is healthy, version {client.version()}")
    config = connector.config()
    plugin = config["connector.class"]
    if plugin not in client.plugins():
        yield Finding.error(
            "plug-in", f"the worker has no {plugin}", "install the plug-in into the worker's plugin.path"
        )
        return
    yield Finding.ok("plug-in", plugin)
    for problem in client.validate({"name": connector.name, **config}):
        message = short_message(problem.message)
        yield Finding.error(f"setting {problem.key}", message, remedy_for(message))
    yield from _running(client, connector)


def _running(client: ConnectClient, connector: Connector) -> Iterator[Finding]:
    check, declared = f"connector {connector.name}", {"name": connector.name, **connector.config()}
    try:
        running, status = client.config(connector.name), client.status(connector.name)
    except UnknownConnector:
        yield Finding.warning(check, "it is not applied, or has no state yet", "factfold cdc apply")
        return
    if changed := differences(running, declared):
        keys = ", ".join(change.key for change in changed)
        yield Finding.warning(
            check, f"it runs with other settings than declared: {keys}", "factfold cdc plan, then apply"
        )
    yield _state(check, status, running)


def _state(check: str, status: ConnectorStatus, running: Mapping[str, str]) -> Finding:
    if is_well(status, running):
        return Finding.ok(check, status.summary())
    if (failure := failure_of(status)) is None:
        return Finding.warning(check, status.summary(), f"factfold cdc resume {status.name}")
    if status.failure is not None and (advice := advice_on(status.failure[1], running)):
        return Finding.error(check, failure.message, "; ".join(advice))
    return Finding.error(check, failure.message, f"{failure.remedy}; then factfold cdc restart --failed {status.name}")


def _topic_findings(settings: Settings, connector: Connector, *, source: Engine | None) -> Iterator[Finding]:
    specs, stores = list(connector.topic_specs), []
    if isinstance(connector, OutboxSource) and source is None:
        yield Finding.ok("topics of events", f"not looked at: {_why_not(connector)}")
    elif isinstance(connector, OutboxSource) and source is not None:
        try:
            stores = stores_of(source, connector)
            specs += [
                event_topic(one.topic, partitions=one.partitions) for store in stores for one in store.categories()
            ]
        except FactfoldError as error:
            stores = []
            yield Finding.error("topics of events", error.message, error.remedy)
    yield from _compared(settings, specs, stores)


def _compared(settings: Settings, specs: Sequence[TopicSpec], stores: Sequence[SqlEventStore]) -> Iterator[Finding]:
    from eventstore.kafka.admin import compare_topics  # needs the extra kafka
    from eventstore.kafka.tails import topic_owners  # needs the extra kafka

    compared, owners = compare_topics(settings, specs), topic_owners(settings, stores)
    for name in compared.missing:
        message = "it does not exist: the connector makes it with its first record"
        yield Finding.warning(f"topic {name}", message, "make it before (eventstore.kafka.admin.ensure_topics)")
    for mismatch in compared.mismatches:
        yield Finding.error(f"topic {mismatch.place}", mismatch.message, mismatch.remedy)
    for topic, foreign in owners.foreign.items():
        yield Finding.error(f"topic {topic}", f"{foreign.message} (at {foreign.place})", foreign.remedy)
    for topic, sources in owners.sources.items():
        if len(sources) > 1:
            message = f"it has events of several sources: {', '.join(sorted(sources))}"
            yield Finding.warning(f"topic {topic}", message, "let its readers name the one they mean: source=")
    wrong = {*compared.missing, *(mismatch.place for mismatch in compared.mismatches), *owners.foreign}
    for spec in specs:
        if spec.name not in wrong:
            yield Finding.ok(f"topic {spec.name}", f"{spec.partitions} partitions, as declared")
