"""Following a log for as long as it lasts, over failures that pass by themselves and over the group's generations.

A database or a broker that is away for a minute costs that minute. What does not pass (a changed definition, a bad
record, lost offsets) ends it at once. After a cut-over the runner goes on with the generation that serves now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Final

import stamina

from eventstore.errors import FactfoldError
from eventstore.restarts import Outwaiting, Restarts
from projections.declaring.group import ProjectionGroup
from projections.environment import Environment
from projections.errors import ProjectionError, RunAlreadyActive, RunRetired, passes
from projections.lifecycle.metrics import RunMetrics
from projections.lifecycle.runner import Runner, RunnerOptions, log, nothing, open_runner
from projections.spark.live.incremental import BatchReport

# A cut-over holds the new generation until its own runner is closed, some milliseconds or a busy second later.
_PATIENCE: Final = 30.0


@dataclass(kw_only=True)
class Follower:
    """Keeps a group's views up to date, over temporary failures.

    Attributes:
        environment: The connections.
        group: The group.
        options: How its runners run.
        policy: How often, and after which pauses, a failed run is started again.
        metrics: Counts for Prometheus.
        on_open: Is called with each runner that is opened.
        on_batch: Is called with the report of each batch.

    Examples:
        >>> Follower(environment=environment, group=shop_views).run(stop=stop)
    """

    environment: Environment
    group: ProjectionGroup
    options: RunnerOptions = field(default_factory=RunnerOptions)
    policy: Restarts = field(default_factory=Restarts)
    metrics: RunMetrics | None = None
    on_open: Callable[[Runner], None] = nothing
    on_batch: Callable[[BatchReport], None] = nothing

    def __post_init__(self) -> None:
        self._outwaiting = Outwaiting(
            self.policy,
            what="runner",
            place=f"projection group {self.group.name}",
            gave_up=ProjectionError,
            passes=self._passes,
            counted_by=self.metrics,
        )

    @property
    def failures(self) -> int:
        """How often it has failed in a row."""
        return self._outwaiting.failures

    @property
    def restarts(self) -> int:
        """How often it was opened again."""
        return self._outwaiting.restarts

    def run(self, *, stop: Event) -> None:
        """Apply batches until ``stop`` is set.

        Raises ProjectionError after too many failures in a row. Other errors of ``open_runner`` and of batches are
        raised at once.
        """
        while not stop.is_set():
            with self._outwaiting.over(stop):
                self._follow(lambda runner: runner.run(stop=stop, on_batch=self._applied))

    def catch_up(self, *, stop: Event) -> None:
        """Apply batches up to the current ends of the topics. Raises the errors of `run`."""
        self.outwait(lambda: self._follow(lambda runner: runner.run_to(stop=stop, on_look=self._looked)), stop=stop)

    def outwait(self, work: Callable[[], object], *, stop: Event) -> None:
        """Do something once, over temporary failures, such as the group's first rebuild. Raises the errors of `run`."""
        self._outwaiting.once(work, stop=stop)

    def _looked(self, report: BatchReport | None) -> None:
        if report is not None:
            self._applied(report)

    def _follow(self, work: Callable[[Runner], object]) -> None:
        def opened(runner: Runner) -> None:
            self.on_open(runner)
            work(runner)

        follow(self.environment, self.group, opened, options=self.options, metrics=self.metrics)

    def _passes(self, error: FactfoldError) -> bool:
        # The database may hold our lost connection's lock a while longer than we knew of its loss.
        return passes(error) or (isinstance(error, RunAlreadyActive) and self.failures > 0)

    def _applied(self, report: BatchReport) -> None:
        self._outwaiting.recovered()
        self.on_batch(report)


def follow(
    environment: Environment,
    group: ProjectionGroup,
    work: Callable[[Runner], None],
    *,
    options: RunnerOptions | None = None,
    metrics: RunMetrics | None = None,
) -> None:
    """Give ``work`` a runner of the serving generation, and after each cut-over one of the next, until it returns.

    Raises what `open_runner` and ``work`` raise; DefinitionChanged where another definition serves now.
    """
    attempts = 1
    while True:
        try:
            opened = partial(open_runner, environment, group, options=options, metrics=metrics)
            with _opened(opened, attempts=attempts) as runner:
                work(runner)
                return
        except RunRetired as cause:
            log.info("moving on to the generation that serves now", group=group.name, from_=cause.place)
        attempts = 1_000


@contextmanager
def _opened(open_next: Callable[[], AbstractContextManager[Runner]], *, attempts: int) -> Iterator[Runner]:
    with ExitStack() as opened:
        for attempt in stamina.retry_context(
            on=RunAlreadyActive, attempts=attempts, timeout=_PATIENCE, wait_initial=0.05, wait_max=0.5
        ):
            with attempt:
                runner = opened.enter_context(open_next())
        yield runner
