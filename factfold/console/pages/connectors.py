"""Connectors: states, tasks, causes, slots and snapshots; restart, pause and resume with what came of it.

What Kafka Connect says of all of them comes by one request, as `cdc status` prints it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import cdc
from cdc import connector_health
from cdc.connect.status import is_well
from cdc.errors import CdcError
from cdc.operating.supervisor import committed_offsets
from cdc.source.catalogue import not_of, slot_facts, typed_errors
from cdc.source.notifications import NotificationReader
from factfold.cli.cdc.connectors import (
    ConnectorStanding,
    causes_of,
    failed_names,
    of_its_own,
    restarted,
    standing,
    worker,
)
from factfold.console.page import Action, Outcome, Page, Query, chosen, problems_of, required
from factfold.console.parts import Part, Problem, Trend
from factfold.console.sources import Clients, Look, Reading, Sources

if TYPE_CHECKING:
    from cdc import ConnectClient
    from cdc.connect.status import ConnectorStatus
    from cdc.source.catalogue import ReplicationSlot
    from cdc.source.notifications import Notification

# Of a configuration: the other settings may be secret.
_TABLES: Final = ("table.include.list", "collection.include.list")


@dataclass(frozen=True, slots=True)
class ConnectorState(ConnectorStanding):
    """A connector as commands show it, with what its configuration says.

    An `outbox` connector publishes the events of a store, each to the topic of its category.
    """

    healthy: bool
    kind: str
    topic_prefix: str | None
    tables: tuple[str, ...]
    slot: str | None
    outbox: bool

    @property
    def failed(self) -> bool:
        """Whether the connector or a task FAILED."""
        return bool(self.causes) or "FAILED" in (self.state, *(task.state for task in self.tasks))


def read_connectors(clients: Clients) -> tuple[ConnectorState, ...]:
    """Return the connectors of the cluster, by name."""
    return tuple(_state(config, status) for config, status in clients.connect.overview().values())


def _state(config: Mapping[str, str], status: ConnectorStatus) -> ConnectorState:
    shown = standing(status)
    tables = next((config[name] for name in _TABLES if name in config), "")
    return ConnectorState(
        shown.name,
        shown.state,
        shown.tasks,
        shown.causes,
        healthy=is_well(status, config),
        kind=config.get("connector.class", "").rpartition(".")[2],
        topic_prefix=config.get("topic.prefix"),
        # Regular expressions, of which ours escape the dot; those that match several tables stay what they are.
        tables=tuple(name.strip().replace("\\.", ".") for name in tables.split(",") if name.strip()),
        slot=config.get("slot.name"),
        outbox=any(name.endswith(".type") and value.endswith(".EventRouter") for name, value in config.items()),
    )


CONNECTORS: Final = Reading(read_connectors)


_NOTIFICATIONS: Final = "notification.sink.topic.name"
_SHOWN: Final = 30


@dataclass(frozen=True, slots=True)
class HealthShown:
    """One connector as `factfold cdc status` has it; `notes` say what was not looked at, and why.

    `streams` says whether an offset comes from the stream of changes, and not from the initial snapshot. It is None
    before the first offset.
    """

    last_event_age: float | None
    slot: ReplicationSlot | None
    advice: tuple[str, ...]
    offsets: tuple[Mapping[str, Any], ...]
    streams: bool | None
    notes: tuple[str, ...]


def read_slots(clients: Clients) -> dict[str, ReplicationSlot]:
    """Return the replication slot of each connector that reads the database which is configured, by name."""
    source = clients.source
    if source is None:
        return {}
    configs = {name: config for name, (config, _) in clients.connect.overview().items()}
    own = {name: config["slot.name"] for name, config in configs.items()
           if "slot.name" in config and not_of(source, config) is None}  # fmt: skip
    with typed_errors(source), source.connect() as connection:
        slots = {name: slot_facts(connection, slot) for name, slot in own.items()}
    for name, slot in slots.items():
        clients.trends.note(f"slot {name}", None if slot is None else slot.lag_bytes)
    return {name: slot for name, slot in slots.items() if slot is not None}


def read_health(clients: Clients, name: str) -> HealthShown:
    """Look at one connector. Raises UnknownConnector."""
    config = clients.connect.config(name)
    source, notes = of_its_own(clients.source, config)
    (state,), offsets = connector_health(clients.connect, name, source=source), committed_offsets(clients.connect, name)
    streams = any(offset.streamed for offset in offsets) if offsets else None
    return HealthShown(
        state.last_event_age, state.slot, state.advice, tuple(offset.offset for offset in offsets), streams, notes
    )


def read_snapshots(clients: Clients, name: str) -> tuple[Notification, ...] | None:
    """Return what a connector said of its snapshots, the newest first; None if it writes no such topic."""
    config = clients.connect.config(name)
    topic = config.get(_NOTIFICATIONS)
    if topic is None or not clients.places.kafka:
        return None
    with NotificationReader(clients.settings, topic, connector=config.get("topic.prefix"), whole=True) as reader:
        return tuple(deque(reader.up_to_now(), maxlen=_SHOWN))[::-1]


SLOTS: Final = Reading(read_slots)
HEALTH: Final = Reading(read_health)
SNAPSHOTS: Final = Reading(read_snapshots)


ACTION_SECONDS: Final = 30.0
"""For so long an action waits for a connector to come to its state."""


@dataclass(frozen=True, slots=True)
class ConnectorLine:
    """A connector in the list of all, with its slot and how the log behind the slot grows."""

    connector: ConnectorState
    slot: ReplicationSlot | None
    trend: Trend


@dataclass(frozen=True, slots=True)
class Detail:
    """One connector."""

    line: ConnectorLine
    health: Part[HealthShown]
    snapshots: Part[tuple[Notification, ...] | None]


@dataclass(frozen=True, slots=True)
class Connectors:
    """Every connector, those that FAILED first, and the chosen one; what could not be looked at."""

    connectors: tuple[ConnectorLine, ...]
    detail: Detail | None
    problems: tuple[Problem, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """The connectors with a part that FAILED."""
        return tuple(one.connector.name for one in self.connectors if one.connector.failed)


def connectors(look: Look, query: Query) -> Connectors:
    """List the connectors, and look at the one that the query names. Raises NotFound for one that Connect lacks."""
    look.start(CONNECTORS, SLOTS)
    part, slots = look.part(CONNECTORS), look.part(SLOTS)
    own: Mapping[str, ReplicationSlot] = slots.value or {}
    states = sorted(part.value or (), key=lambda one: (not one.failed, one.healthy, one.name))
    lines = tuple(ConnectorLine(one, own.get(one.name), look.trend(f"slot {one.name}")) for one in states)
    name = query.get("name") if part.value is not None else None
    detail = None if name is None else _detail(look, lines, name)
    return Connectors(lines, detail, problems_of(part, slots))


def _detail(look: Look, lines: tuple[ConnectorLine, ...], name: str) -> Detail:
    line = chosen(lines, name, "there is no connector", by=lambda one: one.connector.name)
    look.start(HEALTH.of(name), SNAPSHOTS.of(name))
    return Detail(line, look.part(HEALTH.of(name)), look.part(SNAPSHOTS.of(name)))


def _patient(sources: Sources) -> ConnectClient:
    """A client that waits for rebalances, which that of the pages does not. Raises FactfoldError."""
    return worker(sources.clients.connect.url, patience=ACTION_SECONDS)


def _restart(sources: Sources, fields: Query) -> Outcome:
    with _patient(sources) as client:
        return _restarted(sources, client, required(fields, "name"))


def _restarted(sources: Sources, client: ConnectClient, name: str) -> Outcome:
    status, notes = restarted(client, name, sources.clients.source, timeout=ACTION_SECONDS)
    return _outcome(status, "restarted", *notes)


def _restart_failed(sources: Sources, fields: Query) -> Outcome:
    """Restart each connector with a part that FAILED; one that does not come up does not hold the others back."""
    lines = list[str]()
    done = 0
    with _patient(sources) as client:
        failed = failed_names(client)
        for name in failed:
            try:
                lines.append(_restarted(sources, client, name).text)
                done += 1
            except CdcError as error:
                lines.append(f"{name}: {error.message}; remedy: {error.remedy}")
    said = f"restarted {done} of {len(failed)} connectors that had FAILED" if failed else "no connector has FAILED"
    return Outcome(said, done=done == len(failed), details=lines)


def _move(state: str, did: str) -> Callable[[Sources, Query], Outcome]:
    def run(sources: Sources, fields: Query) -> Outcome:
        name = required(fields, "name")
        with _patient(sources) as client:
            return _outcome(cdc.set_connector_state(client, name, state, timeout=ACTION_SECONDS), did)  # type: ignore[arg-type]

    return run


def _outcome(status: ConnectorStatus, did: str, *notes: str) -> Outcome:
    return Outcome(f"{did} {status.name}: {status.summary()}", details=(*causes_of(status), *notes))


PAGE: Final = Page(
    "connectors",
    "Connectors",
    connectors,
    actions={
        "restart": Action(_restart, audited=("name",)),
        "restart-failed": Action(_restart_failed),
        "pause": Action(_move("PAUSED", "paused"), audited=("name",)),
        "resume": Action(_move("RUNNING", "resumed"), audited=("name",)),
    },
)
