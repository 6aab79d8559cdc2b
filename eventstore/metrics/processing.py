"""Metrics of a runner of processes and scheduled commands."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Final

from eventstore.metrics.families import RUNNER, Family, Kind, RunnerMetrics

if TYPE_CHECKING:
    from eventstore.delivery.attempt import DeliveryReport
    from eventstore.processes.worker import ProcessWorker, WorkReport

EVENTS: Final = Family(
    "factfold_process_events_total", Kind.COUNTER,
    "Events delivered to a process, by what became of them (see factfold_subscription_records_total).",
    ("process", "outcome"),
)  # fmt: skip
COMMANDS: Final = Family("factfold_process_commands_total", Kind.COUNTER, "Commands sent for processes or schedules.")
TIMERS: Final = Family("factfold_process_timers_total", Kind.COUNTER, "Timers fired.")
FAILED: Final = Family(
    "factfold_process_failures_total", Kind.COUNTER, "Commands, timers and steps that failed and wait for another try."
)
OVERDUE: Final = Family(
    "factfold_process_overdue_seconds", Kind.GAUGE,
    "Seconds since the oldest command or timer of this runner was due, 0 if none is.",
)  # fmt: skip


class ProcessMetrics(RunnerMetrics):
    """The metrics of one runner of processes, for `run_processes`.

    Args:
        name: A name of the runner, such as the processes' names.

    Examples:
        >>> metrics = ProcessMetrics("shop")
        >>> with serve_metrics(metrics, port=9464):
        ...     run_processes(store, [Fulfilment], stop=stop, metrics=metrics)
    """

    families: ClassVar[tuple[Family, ...]] = (*RUNNER, EVENTS, COMMANDS, TIMERS, FAILED, OVERDUE)

    def __init__(self, name: str) -> None:
        super().__init__("processes", name)

    def delivered(self, process: str, report: DeliveryReport) -> None:
        """Count a batch of events that was delivered to a process."""
        for outcome, count in dataclasses.asdict(report).items():
            self.count(EVENTS, count, process=process, outcome=outcome)

    def watch(self, worker: ProcessWorker) -> None:
        """Show for how long the oldest command or timer of a worker has been due."""
        self.compute(OVERDUE, worker.overdue)

    def worked(self, report: WorkReport) -> None:
        """Count what was due."""
        self.count(COMMANDS, report.commands)
        self.count(TIMERS, report.timers)
        self.count(FAILED, report.failed)
