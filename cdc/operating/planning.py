"""What `apply_connector` would do: declared connectors held against running ones, by setting, secrets masked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from cdc.changes.rules import FIELD_UNAVAILABLE, UNAVAILABLE
from cdc.connect.status import PAUSED, STOPPED, ConnectorStatus
from cdc.connectors.base import holds_secret
from cdc.connectors.declared import Connector
from cdc.connectors.encodings import replaces_nulls
from cdc.connectors.postgres import OutboxSource
from cdc.connectors.secrets import is_reference
from cdc.errors import SourceNotReady
from cdc.source.captured_columns import tables_of
from cdc.source.catalogue import not_of
from eventstore.topics import TopicSpec, event_topic, schemas_topic

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient
    from eventstore import SqlEventStore
    from eventstore.settings import Settings

MASK: Final = "**********"
Action = Literal["create", "change", "restart", "resume", "keep", "undeclared"]
# Modes that read the rows of a connector's tables once, at its very first start.
_ONCE: Final = frozenset({"initial", "initial_only", "when_needed"})


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting as it runs and as it is declared, None if it is missing. Secrets are masked.

    Examples:
        >>> for change in plan_connectors(client, [rows])[0].changes:
        ...     print(change.key, change.running, change.declared)
        heartbeat.interval.ms 1000 5000
    """

    key: str
    running: str | None
    declared: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply_connector` would do with one connector.

    Attributes:
        action: What it would do. "restart": the configuration is as declared, and a part FAILED. "resume": it is paused
            or stopped. "undeclared": it runs and is not declared, and `apply_connector` leaves it alone.
        changes: The settings that differ.
        state: The current state of connector and tasks, None without one.
        notes: What `apply_connector` will not do.
        problems: What the source lacks, which stops `apply_connector`.

    Examples:
        >>> (planned,) = plan_connectors(client, [rows])
        >>> planned.action, planned.is_no_op, planned.state
        ('keep', True, 'RUNNING, task 0 RUNNING')
    """

    name: str
    action: Action
    changes: tuple[SettingChange, ...] = ()
    state: str | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def is_no_op(self) -> bool:
        """Whether `apply_connector` would change nothing."""
        return self.action in ("keep", "undeclared")


def plan_connectors(
    client: ConnectClient, connectors: Iterable[Connector], *, source: Engine | None = None
) -> tuple[Plan, ...]:
    """Compare declared connectors with those of the cluster, in the order given, then undeclared ones by name.

    Nothing is changed. With `source`, an engine of their database, the plan reports what the source lacks.

    Returns:
        `name` and `action` of each connector: create, change, restart, resume, keep or undeclared. `changes` are the
        settings that differ, `state` the current state, `notes` what stays undone, and `problems` what stops
        `apply_connector`.

    Raises:
        ConnectUnavailable: No worker answered.
        ConnectRejected: A worker refused.

    Examples:
        >>> for planned in plan_connectors(client, [rows], source=engine):
        ...     print(planned.name, planned.action)
        shop_tables create
    """
    running = client.overview()
    declared = {connector.name: connector for connector in connectors}
    plans = [_looked_into(_plan(connector, running), connector, source) for connector in declared.values()]
    others = [Plan(name, "undeclared", state=running[name][1].summary()) for name in running if name not in declared]
    return (*plans, *others)


def _plan(connector: Connector, running: Mapping[str, tuple[dict[str, str], ConnectorStatus]]) -> Plan:
    name, config = connector.name, {"name": connector.name, **connector.config()}
    if name not in running:
        return Plan(name, "create", differences({}, config))
    stored, status = running[name]
    changes = differences(stored, config)
    action: Action = "change" if changes else _mending(status)
    return Plan(name, action, changes, status.summary(), notes=unread(stored, config))


def _mending(status: ConnectorStatus) -> Action:
    if status.failure is not None:
        return "restart"
    return "resume" if status.state in (PAUSED, STOPPED) else "keep"


def _looked_into(plan: Plan, connector: Connector, source: Engine | None) -> Plan:
    if source is None:
        return plan
    if (reason := not_of(source, connector.config())) is not None:
        return replace(plan, notes=(*plan.notes, f"its source was not looked into: {reason}"))
    try:
        connector.check_source(source)
    except SourceNotReady as error:
        return replace(plan, problems=(error.message,))
    return plan


def unread(running: Mapping[str, str], declared: Mapping[str, str]) -> tuple[str, ...]:
    """Say which rows a running connector does not read by itself, once it is as declared.

    Those of tables that it is to capture in addition, and those that it has written otherwise than it will.
    """
    return (*_added(running, declared), *_replaced(running, declared), *_misread(running, declared))


def _replaced(running: Mapping[str, str], declared: Mapping[str, str]) -> Iterator[str]:
    if replaces_nulls(running) and not replaces_nulls(declared):
        yield (
            "a NULL in a nullable column with a DEFAULT has arrived as the default until now: "
            "factfold cdc compare … --repair finds and mends such rows in views; factfold cdc snapshot take … reads "
            "them again, where no streamed change of the row came since"
        )


def _misread(running: Mapping[str, str], declared: Mapping[str, str]) -> Iterator[str]:
    if running and FIELD_UNAVAILABLE in declared.values() and FIELD_UNAVAILABLE not in running.values():
        yield (
            f"a user's own value {UNAVAILABLE} has been taken for a missing one until now: "
            "factfold cdc compare … --repair finds and mends such rows in views"
        )


def _added(running: Mapping[str, str], declared: Mapping[str, str]) -> tuple[str, ...]:
    if declared.get("snapshot.mode", "initial") not in _ONCE:
        return ()
    known = tables_of(running)
    added = [table for table in tables_of(declared) if table not in known]
    if not added or not known:
        return ()
    chosen = "".join(f" --table {table}" for table in added)
    return (
        f"rows already in {', '.join(added)} are not read: factfold cdc snapshot take …{chosen} reads them, "
        "of a source with a signal table",
    )


def differences(running: Mapping[str, str], declared: Mapping[str, str]) -> tuple[SettingChange, ...]:
    """Return the settings that differ, by key; a secret that differs is seen to, and not what it is."""
    keys = sorted({*running, *declared})
    return tuple(
        SettingChange(key, masked(key, running.get(key)), masked(key, declared.get(key)))
        for key in keys
        if running.get(key) != declared.get(key)
    )


def masked(key: str, value: str | None) -> str | None:
    """Return a value as it may be shown: a secret only where it is a reference or empty."""
    if not value or is_reference(value) or not holds_secret(key, value):
        return value
    return MASK


def prepare_topics(
    settings: Settings, categories: Iterable[tuple[str, int]] = (), *, stores: Iterable[SqlEventStore] = ()
) -> list[str]:
    """Create the schemas topic and the event topics that are missing, and check the others. Return the created ones.

    Args:
        settings: The settings of Kafka.
        categories: Further topics as (topic, partitions), whose records are not checked.
        stores: The stores that fill the topics of their categories.

    Raises:
        ForeignRecord: A topic ends with an event of another store.
        TopicMismatch: A topic has another partition count or policy.
        BrokerUnreachable: No broker answered. BrokerRefused: a broker refused.

    Examples:
        >>> prepare_topics(settings, stores=[store])
        ['factfold.schemas', 'shop.order']
    """
    from eventstore.kafka.admin import ensure_topics  # needs the extra kafka
    from eventstore.kafka.tails import topic_owners  # needs the extra kafka

    every = list(stores)
    if every:
        topic_owners(settings, every).require_own()
    own = [(category.topic, category.partitions) for store in every for category in store.categories()]
    return ensure_topics(settings, topic_specs([*categories, *own]))


def topic_specs(categories: Iterable[tuple[str, int]]) -> list[TopicSpec]:
    """Describe the topics as they have to be, the schemas topic first."""
    return [schemas_topic(), *(event_topic(name, partitions=count) for name, count in categories)]


def stores_of(source: Engine, connector: OutboxSource) -> list[SqlEventStore]:
    """Return the event stores whose events an outbox publishes."""
    from eventstore import SqlEventStore  # SQLAlchemy is loaded when it is first used

    return [SqlEventStore(source, schema=table.schema) for table in connector.table_names if table.table == "events"]


def require_own_topics(settings: Settings, connector: Connector, source: Engine) -> None:
    """Raise ForeignRecord if a topic that an outbox would fill ends with an event of none of its stores."""
    from eventstore.kafka.tails import topic_owners  # needs the extra kafka

    if isinstance(connector, OutboxSource):
        topic_owners(settings, stores_of(source, connector)).require_own()
