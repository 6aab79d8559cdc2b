"""Metrics of connectors: their states, restarts and replication slots."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from cdc.operating.connector_health import ConnectorHealth
    from cdc.source.catalogue import ReplicationSlot


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
