"""What Kafka Connect says about its workers and connectors, typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

T = TypeVar("T")

RUNNING: Final = "RUNNING"
FAILED: Final = "FAILED"
PAUSED: Final = "PAUSED"
STOPPED: Final = "STOPPED"

# Keys that stand in an offset while an initial snapshot is taken: of relational sources, and of MongoDB's.
_OF_SNAPSHOTS: Final = frozenset({"snapshot", "initsync"})
# MirrorMaker's connectors ask for no task as long as no topic or no group matches.
_MAY_BE_IDLE: Final = frozenset({"MirrorSource", "MirrorCheckpoint"})


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """Whether a worker is ready, and its own words."""

    healthy: bool
    message: str


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The state of one task; `trace` is a Java stack trace when it FAILED."""

    id: int
    state: str
    worker_id: str
    trace: str = ""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> TaskStatus:
        """From Connect's answer."""
        return cls(body["id"], body["state"], body.get("worker_id", ""), body.get("trace", ""))


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """The state of a connector and of all its tasks.

    Examples:
        >>> client.status(rows.name).summary()
        'RUNNING, task 0 RUNNING'
    """

    name: str
    state: str
    worker_id: str
    tasks: tuple[TaskStatus, ...]
    trace: str = ""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ConnectorStatus:
        """Read Connect's answer."""
        connector = body["connector"]
        tasks = tuple(map(TaskStatus.of, body["tasks"]))
        return cls(
            body["name"],
            connector["state"],
            connector.get("worker_id", ""),
            tasks,
            connector.get("trace", ""),
        )

    @property
    def running(self) -> bool:
        """Whether the connector and at least one task run, and no task has another state."""
        return self.state == RUNNING and bool(self.tasks) and all(t.state == RUNNING for t in self.tasks)

    @property
    def stopped(self) -> bool:
        """Whether the connector is STOPPED and no task is left."""
        return self.state == STOPPED and not self.tasks

    @property
    def failure(self) -> tuple[str, str] | None:
        """The first part that FAILED ("connector" or "task 0") with its trace, None if none did."""
        parts = [("connector", self.state, self.trace)]
        parts += [(f"task {task.id}", task.state, task.trace) for task in self.tasks]
        return next(((part, trace) for part, state, trace in parts if state == FAILED), None)

    def summary(self) -> str:
        """One phrase: the connector's state and each task's."""
        tasks = ", ".join(f"task {task.id} {task.state}" for task in self.tasks) or "no task"
        return f"{self.state}, {tasks}"


def may_be_idle(config: Mapping[str, str]) -> bool:
    """Say whether a connector of such a configuration may be well without a task: it may have nothing to do yet."""
    # Connect knows a class by its short name too.
    return config.get("connector.class", "").rpartition(".")[2].removesuffix("Connector") in _MAY_BE_IDLE


def is_well(status: ConnectorStatus, config: Mapping[str, str]) -> bool:
    """Say whether a connector runs with all its tasks, or without one where that may be."""
    return status.running or (status.state == RUNNING and not status.tasks and may_be_idle(config))


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """How far one partition of a source has come, in the connector's own terms."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> SourceOffset:
        """From Connect's answer."""
        return cls(body["partition"], body["offset"])

    @property
    def streamed(self) -> bool:
        """Whether the offset comes from the stream of changes, and not from the initial snapshot.

        PostgreSQL's has the place of the last change that was wholly processed; a snapshot's has none. The other
        databases' (`file` and `pos`; `commit_lsn`; `resume_token`) say when they are a snapshot's, and MirrorMaker's
        (`offset`) never are.
        """
        if "lsn" in self.offset:
            return "lsn_proc" in self.offset
        return bool(self.offset) and not _OF_SNAPSHOTS & self.offset.keys()

    @property
    def lsn(self) -> int:
        """How far a connector has read PostgreSQL's log; 0 for other sources, and before the stream of changes."""
        return int(self.offset.get("lsn_proc") or 0)

    @property
    def at(self) -> datetime | None:
        """When the source committed what the offset stands behind, by the source's clock; None if unknown."""
        if (micros := self.offset.get("ts_usec")) is not None:
            return datetime.fromtimestamp(int(micros) / 1e6, UTC)
        seconds = self.offset.get("ts_sec")  # MySQL's
        return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A setting and what is wrong with its value."""

    key: str
    message: str

    @classmethod
    def all_of(cls, body: Mapping[str, Any]) -> tuple[ConfigProblem, ...]:
        """From Connect's answer about all settings."""
        # A worker says null of a setting that the connector's own check gave no answer about.
        values = (entry["value"] for entry in body["configs"] if entry["value"])
        return tuple(cls(value["name"], error) for value in values for error in value.get("errors", ()))


def each_of(of: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """Read a list whose items are read so."""
    return lambda bodies: tuple(map(of, bodies))


def names_of(body: Any) -> tuple[str, ...]:
    """Read a list of names, and sort it."""
    # A dictionary would give its keys.
    if not isinstance(body, list):
        raise TypeError("no list of names")
    return tuple(sorted(body))


def overview_of(body: Any) -> dict[str, tuple[dict[str, str], ConnectorStatus]]:
    """Read every connector's configuration and status, by name."""
    return {
        name: (dict(body[name]["info"]["config"]), ConnectorStatus.of(body[name]["status"])) for name in sorted(body)
    }
