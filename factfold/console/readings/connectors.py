"""Connectors as Kafka Connect has them, by one request: what `cdc status` prints of their states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.connect.status import is_well
from factfold.cli.cdc.connectors import causes_of
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from cdc.connect.status import ConnectorInfo, ConnectorStatus

# Of a configuration: the other settings may be secret.
_TABLES: Final = ("table.include.list", "collection.include.list")


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task of a connector."""

    id: int
    state: str
    worker: str


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """A connector with its tasks; `causes` say why one failed, the root last.

    An `outbox` connector publishes the events of a store, each to the topic of its category.
    """

    name: str
    state: str
    healthy: bool
    tasks: tuple[TaskState, ...]
    causes: tuple[str, ...]
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
    return tuple(_state(info, status) for info, status in clients.connect.overview().values())


def _state(info: ConnectorInfo, status: ConnectorStatus) -> ConnectorState:
    config = info.config
    tables = next((config[name] for name in _TABLES if name in config), "")
    return ConnectorState(
        name=status.name,
        state=status.state,
        healthy=is_well(status, config),
        tasks=tuple(TaskState(task.id, task.state, task.worker_id) for task in status.tasks),
        causes=tuple(causes_of(status)),
        kind=config.get("connector.class", info.kind).rpartition(".")[2],
        topic_prefix=config.get("topic.prefix"),
        # Regular expressions, of which ours escape the dot; those that match several tables stay what they are.
        tables=tuple(name.strip().replace("\\.", ".") for name in tables.split(",") if name.strip()),
        slot=config.get("slot.name"),
        outbox=any(name.endswith(".type") and value.endswith(".EventRouter") for name, value in config.items()),
    )


CONNECTORS: Final = Reading(read_connectors)
