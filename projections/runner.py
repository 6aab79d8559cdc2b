"""The live loop: read what is new, carry it into the views, again; one runner a generation.

Progress has one home, the progress row: a batch is a bounded Spark read between two sets of offsets, and there is no
Spark checkpoint that could disagree (docs/decisions/0004).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event

import structlog

from projections.boundaries import Boundaries, open_boundaries
from projections.environment import Environment
from projections.errors import OffsetsLost, UnknownSchemaId
from projections.group import ProjectionGroup
from projections.log import OffsetRange
from projections.spark.incremental import BatchReport, LiveBatches
from projections.spark.prepared import PreparedQueries
from projections.spark.view_functions import view_columns
from projections.standing import Standing
from projections.tablestore.runs import Progress, Run, filled
from projections.tablestore.sql import runner_of
from projections.whole_log import require_inputs

MAX_RECORDS = 100_000  # records a batch: some seconds of work, so that progress is seen and a kill costs little
IDLE_SECONDS = (
    0.02  # between two looks at quiet topics; a look is one query of the runs row, and one of the broker or the store
)

log = structlog.get_logger()


class Runner:
    """Keeps a group's views up to date; made by ``open_runner``, which holds the group for it."""

    def __init__(
        self,
        environment: Environment,
        batches: LiveBatches,
        progress: Progress,
        boundaries: Boundaries,
        standing: Standing | None = None,
    ) -> None:
        self._environment = environment
        self._batches = batches
        self._boundaries = boundaries
        self._standing = standing
        self.progress = progress

    @property
    def held(self) -> Run:
        """The run that is held, with our token on it."""
        return self._batches.run

    def run_once(self, *, max_records: int = MAX_RECORDS, ends: Progress | None = None) -> BatchReport | None:
        """Apply one batch of what is new, up to ``ends`` where they are given.

        Returns None where nothing is new, or the run is to stand still; raises RunRetired where it serves no more.
        """
        if self._standing is not None and not self._standing.may_go_on():
            return None
        ends = ends or self._batches.log.end_offsets(list(self._batches.group.inputs))
        offsets = self._bounded(ends, max_records)
        if not offsets.records:
            return None
        report = self._apply(offsets)
        self.progress = offsets.end
        log.info(
            "batch applied",
            group=self._batches.group.name,
            records=report.records,
            upserts=report.upserts,
            retractions=report.retractions,
            seconds={step: round(seconds, 3) for step, seconds in report.seconds.items()},
        )
        return report

    def _bounded(self, ends: Progress, max_records: int) -> OffsetRange:
        if not self._boundaries.sources:
            return bounded(self.progress, ends, max_records=max_records)
        start = waiting(self.progress, ends).start
        kept, others = self._boundaries.within(start, ends, most=max_records)
        rest = bounded({t: start[t] for t in others}, others, max_records=max_records)
        return OffsetRange(start, {**kept, **rest.end})

    def _apply(self, offsets: OffsetRange) -> BatchReport:
        """Apply a range; an unknown schema id is looked up once more before it counts as an error."""
        try:
            return self._batches.apply(offsets)
        except UnknownSchemaId:
            changelogs = self._batches.group.avro_changelogs
            self._batches = self._batches.with_schemas(self._environment.log.schemas(changelogs))
            return self._batches.apply(offsets)

    def run(self, *, stop: Event, on_batch: Callable[[BatchReport], None] = lambda report: None) -> None:
        """Apply batches until ``stop`` is set; the batch at hand is finished first."""
        while not stop.is_set():
            report = self.run_once()
            if report is None:
                stop.wait(IDLE_SECONDS)
            else:
                on_batch(report)

    def catch_up(
        self, ends: Mapping[str, Mapping[int, int]] | None = None, *, deadline: float = 600.0
    ) -> list[BatchReport]:
        """Apply batches up to the given offsets (by default, the ends of the topics now); seconds bound the wait."""
        goal = ends or self._batches.log.end_offsets(list(self._batches.group.inputs))
        reports: list[BatchReport] = []
        until = time.monotonic() + deadline
        while not reached(self.progress, goal):
            if time.monotonic() > until:
                raise TimeoutError(f"group {self._batches.group.name} did not reach {goal} in {deadline} s")
            report = self.run_once()
            if report:
                reports.append(report)
                continue
            if self._standing is not None:
                self._standing.require_unpaused()
            time.sleep(IDLE_SECONDS)
        return reports


@contextmanager
def open_runner(environment: Environment, group: ProjectionGroup, *, generation: int | None = None) -> Iterator[Runner]:
    """Hold a group's serving generation for live batches, or the given one, which then need not serve.

    Raises RunAlreadyActive where another runner holds it, NoServingGeneration, GenerationMissing, DefinitionChanged,
    TopicMissing, OffsetsLost, HistoryNotKept, KeysMissing.
    """
    store = environment.store
    require_inputs(environment, group)
    columns = view_columns(environment.spark, group)
    found = store.serving(group, columns) if generation is None else store.generation(group, generation, columns)
    run, layout = found
    with (
        store.exclusive(group.name, role=runner_of(run)),
        environment.log.open() as opened,
        PreparedQueries(environment.small) as queries,
        open_boundaries(environment.log, group) as boundaries,
    ):
        run = store.claim(run)
        progress = _started(store.progress(run), opened.beginning_offsets(list(group.inputs)))
        batches = LiveBatches.of(environment, opened, group, run, layout, queries)
        standing = Standing(store, run) if generation is None else None
        yield Runner(environment, batches, progress, boundaries, standing)


def _started(stored: Progress, beginning: Progress) -> Progress:
    """Progress for every partition there is; one whose needed records are gone is refused."""
    for topic, offsets in beginning.items():
        for partition, first in offsets.items():
            if stored.get(topic, {}).get(partition, 0) < first:
                raise _lost(topic, partition, f"records before offset {first} are no longer in the topic")
    return filled(stored, beginning)


def _lost(topic: str, partition: int, cause: str) -> OffsetsLost:
    return OffsetsLost(
        cause,
        remedy="rebuild the projection; keep a topic longer than a run may stand still, and do not make it anew",
        place=f"topic {topic}, partition {partition}",
    )


def waiting(progress: Progress, ends: Progress) -> OffsetRange:
    """Everything from progress to the ends; a new partition begins at 0, one that ends before progress is refused."""
    start = filled(progress, ends)
    for topic, parts in ends.items():
        for partition, end in parts.items():
            if end < start[topic][partition]:
                cause = f"the topic ends at offset {end}, and {start[topic][partition]} were applied: it was made anew"
                raise _lost(topic, partition, cause)
    return OffsetRange(start, ends)


def bounded(start: Progress, ends: Progress, *, max_records: int) -> OffsetRange:
    """At most ``max_records`` offsets from ``start`` on, shared among partitions by what each has waiting."""
    everything = waiting(start, ends)
    if everything.records <= max_records:
        return everything
    share = max_records / everything.records

    def upto(first: int, last: int) -> int:
        return first + min(last - first, max(1, int((last - first) * share)))

    begun = everything.start
    end = {t: {p: upto(begun[t][p], last) for p, last in parts.items()} for t, parts in ends.items()}
    return OffsetRange(begun, end)


def reached(progress: Progress, goal: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether progress is at or beyond the goal in every partition."""
    return all(progress.get(t, {}).get(p, 0) >= o for t, parts in goal.items() for p, o in parts.items())
