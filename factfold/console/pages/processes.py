"""Processes as the event store has them: what `processes stats` and `processes list` print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from eventstore.backends.sql.changes import ScheduledStanding, standing_of_processes
from eventstore.deadletters.causes import pattern_of
from eventstore.errors import FactfoldError, InvalidArgument
from eventstore.fields.conversions import aware_utc
from eventstore.fields.plain_json import load_plain
from eventstore.identifiers import StreamName
from eventstore.processes.administration import Processes
from eventstore.processes.records import ENDED
from eventstore.scheduling import Schedule
from factfold.cli.service.processes import status_as_json
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore.backends.sql.process_rows import Scheduled
    from eventstore.processes.administration import InstanceStatus, ProcessCount

STUCK_AFTER: Final = timedelta(hours=1)
SHOWN: Final = 50  # instances on a page
_LIMIT: Final = 200
TROUBLED_READ: Final = 5_000  # instances with a problem that are looked at, and retried by one form
_CAUSES: Final = 20
_STEPS: Final = 100
_TEXTS: Final = ("data", "state", "arguments", "undo_arguments")  # of a step: plain values, written as text


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
    """Instances of a process, those that stand still for the longest first; `next` is the place to go on from."""

    instances: Sequence[Mapping[str, Any]]
    next: str | None


@dataclass(frozen=True, slots=True)
class InstanceShown:
    """One instance as `factfold processes show --json` prints it, its last steps in the order of time."""

    status: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    more: bool
    ended: bool


def read_instances(clients: Clients, process: str, ended: bool, part: str, after: str | None) -> Instances:
    """Return instances of a process that have not ended, or all; those with a part of an id, behind a place."""
    place = None if after is None else _place(after)
    found = Processes(clients.store).instances(process, ended=ended, limit=SHOWN + 1, part=part, after=place)
    last = found[SHOWN - 1] if len(found) > SHOWN else None
    shown = tuple(status_as_json(one) for one in found[:SHOWN])
    return Instances(shown, f"{last.stepped.isoformat()}/{last.instance}" if last else None)


def _place(text: str) -> tuple[datetime, str]:
    """Return the place behind an instance, such as `2026-11-26T12:00:00+00:00/o1`. Raises InvalidArgument."""
    moment, _, instance = text.partition("/")
    try:
        return aware_utc(datetime.fromisoformat(moment)), instance
    except (ValueError, FactfoldError):
        raise InvalidArgument(f"{text[:80]!r} is no place in the list", remedy="begin with the first page") from None


def read_troubled(clients: Clients, process: str) -> tuple[tuple[str, int], ...]:
    """Return what keeps instances of a process from going on, each with how many it keeps, the most frequent first."""
    troubled = Processes(clients.store).troubled(process, limit=TROUBLED_READ)
    return tuple(Counter(pattern_of(one.problem) for one in troubled).most_common(_CAUSES))


def read_instance(clients: Clients, process: str, instance: str) -> InstanceShown:
    """Return an instance with its last steps. Raises ProcessError."""
    status = Processes(clients.store).show(process, instance)
    steps = clients.store.read_stream(StreamName(process, instance), backwards=True, limit=_STEPS + 1)
    opened = [{"version": step.version, "time": step.time, **opened_step(step.data)} for step in steps]
    return InstanceShown(
        status_as_json(status), opened[:_STEPS][::-1], more=len(opened) > _STEPS, ended=status.status in ENDED
    )


def opened_step(value: Any) -> Any:
    """Return what a step of a process recorded, with the values that it holds as text."""
    if isinstance(value, Mapping):
        return {
            name: load_plain(one) if name in _TEXTS and isinstance(one, str) else opened_step(one)
            for name, one in value.items()
        }
    return [opened_step(one) for one in value] if isinstance(value, list) else value


def read_own_categories(clients: Clients) -> tuple[str, ...]:
    """Return the categories of the steps of processes."""
    declared = {kind.category for kind in clients.definitions.processes.values()}
    return tuple(sorted(declared | {count.process for count in Processes(clients.store).stats()}))


def read_scheduled(clients: Clients) -> tuple[Scheduled, ...]:
    """Return commands that were scheduled without a process, those set aside first."""
    return tuple(Schedule(clients.store).pending(limit=_LIMIT))


PROCESSES: Final = Reading(read_processes)
INSTANCES: Final = Reading(read_instances)
INSTANCE: Final = Reading(read_instance)
OWN_CATEGORIES: Final = Reading(read_own_categories)
TROUBLED: Final = Reading(read_troubled, rest=5.0)
SCHEDULED: Final = Reading(read_scheduled)
