"""The live loop: read what is new, carry it into the views, again; one runner a generation.

Progress has one home, the progress row: a batch is a bounded Spark read between two sets of offsets, and there is no
Spark checkpoint that could disagree (docs/decisions/0004).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Final

import structlog

from eventstore.errors import TopicMissing
from projections.declaring.group import ProjectionGroup
from projections.environment import Environment
from projections.errors import ProjectionError
from projections.lifecycle.between_batches import (
    AfterBatch,
    Due,
    KnownTopics,
    Moments,
    Standing,
    after_batches,
    forgotten_by_serving,
    moments_of,
)
from projections.lifecycle.metrics import LagClock, RunLag, RunMetrics
from projections.logs.offsets import BatchSize, OffsetRange, Offsets, bounded, reached, started, waiting
from projections.logs.port import OpenLog
from projections.logs.ranges import Boundaries, open_boundaries, require_deletions
from projections.outputs.publishing import ViewPublisher, opened_publisher
from projections.spark.live.applying import BatchApplier, opened_letters
from projections.spark.live.incremental import BatchReport
from projections.spark.live.prepared import PreparedQueries
from projections.spark.reading.records import require_inputs
from projections.spark.views.view_functions import view_columns
from projections.stores.locks import runner_of
from projections.stores.runs import Progress, Run, superseded

# Between two looks at quiet topics; a look is one query of the runs row, and one of the broker or the store.
IDLE_SECONDS = 0.02
# A run that is so far behind asks before each batch whether it may have missed deletions: no topic keeps less.
_LONG_BEHIND: Final = 3600.0

log = structlog.get_logger()


def nothing(_: object) -> None:
    """The default of optional callbacks."""


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """How a runner runs.

    Attributes:
        batch: The size of its batches, by default that of the table store.
        schema_patience: Seconds to wait for an unknown schema id.

    Examples:
        >>> options = RunnerOptions(batch=BatchSize(target=0.5), schema_patience=30)
        >>> with open_runner(environment, shop_views, options=options) as runner: runner.run(stop=stop)
    """

    batch: BatchSize | None = None
    schema_patience: float = 5.0


@dataclass
class Runner:
    """Keeps a group's views up to date. `open_runner` makes it, and holds the group for it.

    Attributes:
        progress: The offsets that are applied.
        batch: The size of the next batch.

    Examples:
        >>> with open_runner(environment, shop_views) as runner:
        ...     reports = runner.catch_up()
        ...     runner.lag().records
        0
    """

    group: ProjectionGroup
    opened: OpenLog
    applier: BatchApplier
    progress: Progress
    boundaries: Boundaries
    batch: BatchSize
    topics: KnownTopics
    standing: Standing | None = None
    publisher: ViewPublisher | None = None
    moments: Moments | None = None
    after: Sequence[AfterBatch] = ()
    metrics: RunMetrics | None = None

    def __post_init__(self) -> None:
        self._clock = LagClock()
        self._planned, self._may_go_on = False, True

    @property
    def held(self) -> Run:
        """The run that is held, with the runner's token."""
        return self.applier.batches.run

    def run_once(self, *, max_records: int | None = None, ends: Progress | None = None) -> BatchReport | None:
        """Apply one batch of new records. Return None if nothing is new, or if the run is paused.

        Args:
            max_records: The size of the batch, instead of the adapted one.
            ends: Offsets at which the batch ends at the latest.

        Raises:
            RunRetired: The generation no longer serves.
        """
        report = self._apply_once(max_records=max_records, ends=ends, at_once=True)
        self._let_go(to_the_end=True)
        return report

    def _apply_once(
        self, *, max_records: int | None = None, ends: Progress | None = None, at_once: bool = False
    ) -> BatchReport | None:
        self._may_go_on = self.standing is None or self.standing.may_go_on()
        self.topics.require()
        seen = self._look() if self.moments is None else self.moments.look(self._look, at_once=at_once)
        if self.lag().seconds > _LONG_BEHIND:
            require_deletions(self.opened, self.progress, seen, topics=self.group.inputs)
        offsets = self._bounded(ends or seen, max_records or self.batch.records) if self._may_go_on else None
        if offsets is None or not offsets.records:
            return None
        report = self.applier.apply(offsets)
        self.progress = offsets.end
        if self.publisher is not None and report.upserts + report.retractions:
            with report.step("publish"):
                report.published = self.publisher.publish()
        self._learn(report)
        return report

    def _let_go(self, *, to_the_end: bool = False) -> None:
        """After a batch and the word of it: take the steps that are due."""
        if not self._may_go_on:
            return
        passed = self.moments is not None and self.moments.applied(self.progress)
        due = Due(None if self.moments is None else self.moments.passed, passed, to_the_end)
        for step in self.after:
            if rows := step.take(due):
                log.info(step.happened, group=self.group.name, rows=dict(rows))
                step.count(rows)

    def lag(self) -> RunLag:
        """Return how far the run is behind what it saw last."""
        return self._clock.lag(self.progress, now=time.time())

    def _look(self) -> Offsets:
        try:
            ends, now = self.opened.end_offsets(list(self.group.inputs)), time.time()
        except TopicMissing:
            self.topics.doubt()  # the next one of its name is another one
            raise
        if not self._clock.looked and (there := waiting(self.progress, ends)).records:
            # What lies there already has waited for longer than we have looked.
            oldest = self.opened.oldest(there)
            now = now if oldest is None else min(now, oldest.timestamp())
        self._clock.saw(ends, at=now)
        self._tell_standing()  # before the batch, which may fail: the lag is to be seen all the more
        return ends

    def _learn(self, report: BatchReport) -> None:
        """Compute the next batch's size and the lag after a batch, and report both."""
        if self._planned:  # the first batch makes the plans of all others, and takes longer than any
            self.batch = self.batch.after(report.records, seconds=report.total_seconds)
        self._planned = True
        lag = self.lag()
        report.lag_offsets, report.lag_seconds = lag.records, lag.seconds
        if self.metrics is not None:
            self.metrics.batch(report)
        self._tell_standing()
        log.info(
            "batch applied",
            group=self.group.name,
            records=report.records,
            upserts=report.upserts,
            retractions=report.retractions,
            set_aside=sum(report.set_aside.values()),
            lag_offsets=lag.records,
            lag_seconds=round(lag.seconds, 3),
            next_batch=self.batch.records,
            seconds={step: round(seconds, 3) for step, seconds in report.seconds.items()},
        )

    def _tell_standing(self) -> None:
        if self.metrics is not None:
            self.metrics.standing(self.lag(), topics=self.group.inputs, batch_size=self.batch.records)

    def _bounded(self, ends: Progress, max_records: int) -> OffsetRange:
        if not self.boundaries.sources:
            return bounded(self.progress, ends, max_records=max_records)
        start = waiting(self.progress, ends).start
        whole, others = self.boundaries.within(start, ends, most=max_records)
        rest = bounded({t: start[t] for t in others}, others, max_records=max_records)
        return OffsetRange(start, {**whole, **rest.end})

    def run(self, *, stop: Event, on_batch: Callable[[BatchReport], None] = nothing) -> None:
        """Apply batches until ``stop`` is set. The current batch is finished first."""
        while not stop.is_set():
            report = self._apply_once()
            if report is not None:
                on_batch(report)
            self._let_go()
            if report is None:
                self._plan()
                stop.wait(IDLE_SECONDS)

    def _plan(self) -> None:
        """Spend the first quiet moment on what the first batch would take its time for."""
        if not self._planned and self._may_go_on:
            self.applier.batches.plan()
            self._planned = True

    def catch_up(self, ends: Offsets | None = None, *, deadline: float = 600.0) -> list[BatchReport]:
        """Apply batches up to offsets, by default the current ends of the topics. Return their reports.

        Raises ProjectionError if that takes more than ``deadline`` seconds. Raises ProjectionError.
        """
        reports: list[BatchReport] = []
        until, late = time.monotonic() + deadline, Event()

        def in_time(report: BatchReport | None) -> None:
            if report is not None:
                reports.append(report)
            if time.monotonic() > until:
                late.set()

        if not self.run_to(ends, stop=late, on_look=in_time):
            raise ProjectionError(
                f"the views did not reach the requested place within {deadline:g} s",
                remedy="see in the log what the batches wait for. Nothing is lost: try again, or with more memory",
                place=f"projection group {self.group.name}",
                code="not-caught-up",
            )
        return reports

    def run_to(
        self, ends: Offsets | None = None, *, stop: Event, on_look: Callable[[BatchReport | None], None] = nothing
    ) -> bool:
        """Apply batches up to offsets, by default the current ends of the topics. Return False if it was stopped.

        ``on_look`` is called with the report of each batch, and with None if nothing is new. Raises ProjectionError.
        """
        goal = ends or self.opened.end_offsets(list(self.group.inputs))
        while not (there := reached(self.progress, goal)) and not stop.is_set():
            report = self._apply_once()
            on_look(report)
            self._let_go()
            if report is None:
                if self.standing is not None:
                    self.standing.require_unpaused()
                stop.wait(IDLE_SECONDS)
        if there:
            self._settle()
        return there

    def _settle(self) -> None:
        """Let go of all that is due by now: the caller may go on without the runner."""
        self._may_go_on = self.standing is None or self.standing.may_go_on()
        self._let_go()
        if self.moments is not None:
            self.moments.look(lambda: self.opened.end_offsets(list(self.group.inputs)), at_once=True)
        self._let_go(to_the_end=True)


@contextmanager
def open_runner(
    environment: Environment,
    group: ProjectionGroup,
    *,
    generation: int | None = None,
    options: RunnerOptions | None = None,
    metrics: RunMetrics | None = None,
) -> Iterator[Runner]:
    """Hold a group's serving generation for live batches.

    Args:
        environment: The connections.
        group: The group.
        generation: Another generation than the serving one.
        options: How the runner runs.
        metrics: Counts for Prometheus.

    Raises:
        RunAlreadyActive: Another runner holds the generation.
        NoServingGeneration: The group was not built yet. ProjectionError: there is no such generation.
        FactfoldError: DefinitionChanged of the group, TopicMissing, TopicMismatch, OffsetsLost or ProjectionError
            of a topic, KeysMissing of personal columns, InvalidDefinition for topics that the log cannot have.

    Examples:
        >>> with open_runner(environment, shop_views) as runner: runner.run(stop=stop)
    """
    store, chosen = environment.store, options or RunnerOptions()
    require_inputs(environment, group)
    columns = view_columns(environment.spark, group)
    run, layout = store.serving(group, columns) if generation is None else store.generation(group, generation, columns)
    with ExitStack() as held:
        held.enter_context(store.exclusive(group.name, role=runner_of(run)))
        opened = held.enter_context(environment.log.open())
        queries = held.enter_context(PreparedQueries(environment.small))
        boundaries = held.enter_context(open_boundaries(environment.log, group))
        letters = held.enter_context(opened_letters(environment.log, group))
        run = store.claim(run)
        if (state := store.state(run)) is None:
            raise superseded(run)  # the generation was dropped meanwhile
        (topics := KnownTopics(environment, group, state)).require()
        progress = started(state.progress, opened.beginning_offsets(list(group.inputs)))
        require_deletions(opened, progress, opened.end_offsets(list(group.inputs)), topics=group.inputs)
        standing = publisher = None
        after: Sequence[AfterBatch] = ()
        batches = environment.keeper.batches(opened, group, run, layout, queries)
        applier = BatchApplier(batches, letters, patience=chosen.schema_patience)
        if generation is None:
            standing = Standing(store, run)
            waiting = metrics.waiting if metrics else None
            if publisher := held.enter_context(opened_publisher(environment, group, waiting)):
                publisher.publish()  # what another one has left, or the cut-over to this generation
            after = tuple(after_batches(environment, group, run, layout, publisher, metrics))
        else:  # it is made without what the generation that serves has forgotten by then
            applier.known = lambda offsets: forgotten_by_serving(environment, group, columns).within_range(offsets)
        yield Runner(
            group, opened, applier, progress,
            boundaries=boundaries, batch=chosen.batch or BatchSize(), topics=topics, standing=standing,
            publisher=publisher, moments=moments_of(environment, group), after=after, metrics=metrics,
        )  # fmt: skip
