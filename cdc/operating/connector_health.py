"""How a connector does: its states in Connect, its slot in the source, how old the last change is that it brought."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final

from cdc.connect.status import ConnectorStatus, SourceOffset, is_well
from cdc.connectors.base import Connector
from cdc.errors import ConnectRejected, UnknownConnector
from cdc.source.captured_columns import advice_on
from cdc.source.catalogue import ReplicationSlot, clock, slot_facts, typed_errors
from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from cdc.connect.client import ConnectClient


def _gauge(name: str, help: str, *labels: str) -> Family:
    return Family(f"factfold_connector_{name}", Kind.GAUGE, help, ("connector", *labels))


WELL: Final = _gauge("is_well", "1 if the connector and all its tasks run, or 0.")
TASKS: Final = _gauge("tasks", "Tasks by their state in Kafka Connect.", "state")
LAST_EVENT: Final = _gauge(
    "last_event_timestamp_seconds", "When the newest transaction that came out of the connector was committed."
)
SLOT_ACTIVE: Final = _gauge("slot_is_active", "1 if the connector's replication slot is being read, or 0.", "slot")
SLOT_LAG: Final = _gauge("slot_lag_bytes", "Bytes of log that the slot's reader has not confirmed.", "slot")
SLOT_SIZE: Final = _gauge("slot_retained_bytes", "Bytes of log that the source database holds for the slot.", "slot")
SLOT_LOST: Final = _gauge("slot_is_lost", "1 if the slot lost its place, or is about to lose it.", "slot")
RESTARTS: Final = Family(
    "factfold_connector_restarts_total", Kind.COUNTER, "Restarts of a connector by the supervisor.", ("connector",)
)
GIVEN_UP: Final = _gauge("is_given_up", "1 if the supervisor no longer restarts the connector, or 0.")
_ENDANGERED: Final = ("unreserved", "lost")


@dataclass(frozen=True, slots=True)
class ConnectorHealth:
    """A connector's states, its replication slot, and the age of its last event.

    A quiet source makes the last event old although nothing is wrong: the slot is then active and its lag stays small,
    since heartbeats move the slot and are no events.

    Attributes:
        status: The state of the connector and its tasks.
        slot: The replication slot, None without a source or without a slot of this name.
        last_event_age: Seconds since the commit of the newest transaction that the connector published, None before the
            first event. The source's clock decides, if the source is given.
        well: It runs with all its tasks. A connector of MirrorMaker may have none while nothing matches.
        advice: For a row that is larger than a request: its tables, the SQL that finds it, the remedy.

    Examples:
        >>> (current,) = connector_health(client, rows, source=engine)
        >>> current.well, current.last_event_age, current.slot.lag_bytes
        (True, 3.2, 1216)
    """

    status: ConnectorStatus
    slot: ReplicationSlot | None = None
    last_event_age: float | None = None
    well: bool = False
    advice: tuple[str, ...] = ()


def connector_health(
    client: ConnectClient, *connectors: Connector | str, source: Engine | None = None
) -> tuple[ConnectorHealth, ...]:
    """Return the health of connectors in their order, by default of all of the cluster by name. Nothing is changed.

    Args:
        client: The worker.
        *connectors: The connectors or their names.
        source: An engine of their database, for the replication slots.

    Returns:
        `well`, `status`, `slot`, `last_event_age` in seconds and `advice` of each connector.

    Raises:
        UnknownConnector: Connect does not know one, or has no state of it yet.
        SourceNotReady: The source cannot be asked.
        ConnectUnavailable: No worker answered.

    Examples:
        >>> [one.status.name for one in connector_health(client, source=engine) if not one.well]
        []
    """
    if not connectors:
        return tuple(_health(client, status, info.config, source=source) for info, status in client.overview().values())
    names = [one if isinstance(one, str) else one.name for one in connectors]
    return tuple(_health(client, client.status(name), client.config(name), source=source) for name in names)


def _health(
    client: ConnectClient, status: ConnectorStatus, config: Mapping[str, str], *, source: Engine | None
) -> ConnectorHealth:
    slot, now = None, datetime.now(UTC)
    if source is not None:
        with typed_errors(source), source.connect() as connection:
            slot, now = slot_facts(connection, config.get("slot.name", "")), clock(connection)
    times = [offset.at for offset in committed_offsets(client, status.name)]
    newest = max((at for at in times if at is not None), default=None)
    age = None if newest is None else max(0.0, (now - newest).total_seconds())
    advice = advice_on(status.failure[1], config) if status.failure else ()
    return ConnectorHealth(status, slot, age, well=is_well(status, config), advice=advice)


def committed_offsets(client: ConnectClient, name: str) -> tuple[SourceOffset, ...]:
    """Return how far a connector has come; nothing for one that failed at its start, which does not tell."""
    try:
        return client.offsets(name)
    except UnknownConnector:
        raise
    except ConnectRejected:
        return ()


class ConnectorMetrics(RunnerMetrics):
    """The metrics of a supervisor of connectors, for `Supervisor`. Call `standing` now and then.

    Args:
        name: A name of the supervised cluster, such as its host.

    Examples:
        >>> metrics = ConnectorMetrics()
        >>> with serve_metrics(metrics, port=9464):
        ...     Supervisor(client, metrics=metrics).run(stop)
    """

    families: ClassVar[tuple[Family, ...]] = (
        *RUNNER,
        WELL,
        TASKS,
        LAST_EVENT,
        SLOT_ACTIVE,
        SLOT_LAG,
        SLOT_SIZE,
        SLOT_LOST,
        RESTARTS,
        GIVEN_UP,
    )

    def __init__(self, name: str = "connectors") -> None:
        super().__init__("connectors", name)

    def restarted_connector(self, connector: str) -> None:
        """Count a restart."""
        self.count(RESTARTS, connector=connector)

    def supervised(self, connectors: dict[str, bool]) -> None:
        """Note of each connector whether it is given up."""
        for connector in connectors:
            self.count(RESTARTS, 0, connector=connector)
        self.replace(GIVEN_UP, [({"connector": name}, float(given_up)) for name, given_up in connectors.items()])

    def standing(self, found: Sequence[ConnectorHealth]) -> None:
        """Show connectors as they are now. Others are no longer shown."""
        names = [({"connector": one.status.name}, one) for one in found]
        self.replace(WELL, [(label, float(one.well)) for label, one in names])
        self.replace(TASKS, [(label | {"state": state}, count) for label, one in names
                             for state, count in _states(one).items()])  # fmt: skip
        now = time.time()
        self.replace(LAST_EVENT, [(label, now - one.last_event_age) for label, one in names
                                  if one.last_event_age is not None])  # fmt: skip
        self._slots([(label | {"slot": one.slot.name}, one.slot) for label, one in names if one.slot is not None])

    def _slots(self, slots: Sequence[tuple[dict[str, str], ReplicationSlot]]) -> None:
        self.replace(SLOT_ACTIVE, [(label, float(slot.active)) for label, slot in slots])
        self.replace(SLOT_LOST, [(label, float(slot.wal_status in _ENDANGERED)) for label, slot in slots])
        self.replace(SLOT_LAG, [(label, slot.lag_bytes) for label, slot in slots if slot.lag_bytes is not None])
        self.replace(
            SLOT_SIZE, [(label, slot.retained_bytes) for label, slot in slots if slot.retained_bytes is not None]
        )


def _states(one: ConnectorHealth) -> dict[str, int]:
    states = [task.state for task in one.status.tasks]
    return {state: states.count(state) for state in dict.fromkeys(("RUNNING", "FAILED", *states))}
