"""Processes as the event store has them: what `processes stats` and `processes list` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from eventstore.backends.sql.watching import ScheduledStanding, standing_of_processes
from eventstore.identifiers import StreamName
from eventstore.processes.administration import Processes
from eventstore.processes.records import ENDED
from eventstore.scheduling import Schedule
from factfold.cli.service.shown_processes import status_as_json, step_as_json
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore.backends.sql.process_rows import Scheduled
    from eventstore.processes.administration import InstanceStatus, ProcessCount

STUCK_AFTER: Final = timedelta(hours=1)
_LIMIT: Final = 200
_STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process, declared or with instances: how many have which status, and those that are stuck.

    `scheduled` is how its timers and commands stand.
    """

    name: str
    target: str | None
    counts: Sequence[ProcessCount]
    stuck: Sequence[InstanceStatus]
    scheduled: ScheduledStanding

    @property
    def instances(self) -> int:
        """How many instances there are."""
        return sum(count.instances for count in self.counts)


def read_processes(clients: Clients) -> tuple[ProcessState, ...]:
    """Return every process of the store and of the definitions, by name."""
    processes, scheduled = Processes(clients.store), standing_of_processes(clients.store)
    counts, stuck = processes.stats(), processes.instances(stuck=STUCK_AFTER, limit=_LIMIT)
    targets = {kind.category: target for target, kind in clients.definitions.processes.items()}
    names = sorted(targets.keys() | {count.process for count in counts})
    for name in names:
        clients.trends.note(f"process {name}", float(sum(one.process == name for one in stuck)))
    return tuple(
        ProcessState(
            name,
            targets.get(name),
            tuple(count for count in counts if count.process == name),
            tuple(one for one in stuck if one.process == name),
            scheduled.get(name, ScheduledStanding(0.0, 0)),
        )
        for name in names
    )


@dataclass(frozen=True, slots=True)
class Instances:
    """Instances of a process, those that stand still for the longest first."""

    instances: Sequence[Mapping[str, Any]]
    more: bool


@dataclass(frozen=True, slots=True)
class InstanceShown:
    """One instance as `factfold processes show --json` prints it, the newest step first."""

    status: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    more: bool
    ended: bool


def read_instances(clients: Clients, process: str, ended: bool) -> Instances:
    """Return the instances of a process that have not ended, or all."""
    instances = Processes(clients.store).instances(process, ended=ended, limit=_LIMIT + 1)
    return Instances(tuple(status_as_json(one) for one in instances[:_LIMIT]), len(instances) > _LIMIT)


def read_instance(clients: Clients, process: str, instance: str) -> InstanceShown:
    """Return an instance with its last steps. Raises ProcessUnknown."""
    status = Processes(clients.store).show(process, instance)
    steps = clients.store.read_stream(StreamName(process, instance), backwards=True, limit=_STEPS + 1)
    plain_steps = [step_as_json(step) for step in steps]
    shown = tuple(plain_steps[:_STEPS])
    return InstanceShown(status_as_json(status), shown, more=len(plain_steps) > _STEPS, ended=status.status in ENDED)


def read_scheduled(clients: Clients) -> tuple[Scheduled, ...]:
    """Return commands that were scheduled without a process, those set aside first."""
    return tuple(Schedule(clients.store).pending(limit=_LIMIT))


PROCESSES: Final = Reading(read_processes)
INSTANCES: Final = Reading(read_instances)
INSTANCE: Final = Reading(read_instance)
SCHEDULED: Final = Reading(read_scheduled)
