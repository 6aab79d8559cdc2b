"""The running process: it gets its events from Kafka, and sends the commands that are due."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eventstore import Processes, run_processes
from eventstore.delivery.attempt import DeliveryReport
from eventstore.processes.records import ENDED
from eventstore.processes.worker import WorkReport
from sample_app.background import Background
from sample_app.fulfilment.process import Fulfilment
from sample_app.road import Road


class RunningFulfilment:
    """A process that is being carried out; ``work`` counts its commands and timers as they go."""

    def __init__(self, road: Road, kind: type[Fulfilment]) -> None:
        self._processes, self._kind = Processes(road.store, [kind]), kind
        self.work = WorkReport()
        self.background = Background(
            lambda stop: run_processes(road.store, [kind], stop=stop, settings=road.settings, on_batch=self._done),
            name=kind.category,
        )

    def ended(self) -> int:
        """How many instances have come to an end."""
        self.background.require_health()
        counted = self._processes.stats(self._kind.category)
        return sum(count.instances for count in counted if count.status in ENDED)

    def statuses(self) -> dict[str, int]:
        """How many instances have which status."""
        return {count.status: count.instances for count in self._processes.stats(self._kind.category)}

    def _done(self, report: DeliveryReport | WorkReport) -> None:
        if isinstance(report, WorkReport):
            self.work.add(report)


@contextmanager
def fulfilling(road: Road, kind: type[Fulfilment]) -> Iterator[RunningFulfilment]:
    """Carry out the process for as long as the block lasts."""
    running = RunningFulfilment(road, kind)
    with running.background.running():
        yield running
