"""Processes as the event store has them: what `processes stats` and `processes list` print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore.processes.administration import InstanceStatus, ProcessCount

STUCK_AFTER: Final = timedelta(hours=1)
_LIMIT: Final = 200


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process, declared or with instances: how many have which status, and those that are stuck."""

    name: str
    target: str | None
    counts: Sequence[ProcessCount]
    stuck: Sequence[InstanceStatus]

    @property
    def instances(self) -> int:
        """How many instances there are."""
        return sum(count.instances for count in self.counts)


def read_processes(clients: Clients) -> tuple[ProcessState, ...]:
    """Return every process of the store and of the definitions, by name."""
    from eventstore.processes.administration import Processes

    found = Processes(clients.store)
    counts, stuck = found.stats(), found.instances(stuck=STUCK_AFTER, limit=_LIMIT)
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
        )
        for name in names
    )


PROCESSES: Final = Reading(read_processes)
