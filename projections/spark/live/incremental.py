"""One live batch: the changes of an offset range, carried into state and views at the cost of what they reach."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from eventstore.schema_registry import RegisteredSchema
from projections.connections import Connections
from projections.declaring.columns import LONG, ColumnType
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.streams import EventStream
from projections.logs.offsets import OffsetRange
from projections.logs.port import OpenLog
from projections.logs.set_aside import SetAside
from projections.planning.planner import ViewPlan, plan
from projections.spark.events.evolve import EvolvedFold
from projections.spark.exchange import are_few, fetched, few_rows, in_table_order, read, write
from projections.spark.failures import described
from projections.spark.judging import with_floor
from projections.spark.kinds import Reduction, kind_of
from projections.spark.live.prepared import Build, PreparedQueries
from projections.spark.reading.records import Rows, left_out, read_records
from projections.spark.views.differing import differing
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.partials import brought_forward, stored_columns
from projections.stores import forgetting, staging
from projections.stores.arrow import Target
from projections.stores.aside import note_late, note_set_aside
from projections.stores.layout import SIDE, GenerationLayout, PartialLayout, TableLayout, ViewLayout
from projections.stores.runs import Run
from projections.stores.sql import TableStore
from projections.stores.staging import commit_batch
from projections.stores.view_changes import (
    cut_changes,
    cut_slices,
    drop_marked,
    find_affected,
    has_marked,
    stage_difference,
)

if TYPE_CHECKING:
    import sqlalchemy as sa
    from pyspark.sql import DataFrame


T = TypeVar("T")
R = TypeVar("R")
# Few connections, and not the memory of many large results at once.
_SIDE_BY_SIDE: Final = 8


@dataclass
class BatchReport:
    """What a batch did.

    Attributes:
        records: The offsets that were read.
        staged: The rows that were staged.
        affected: The view rows that were computed again.
        upserts: The view rows that were written.
        retractions: The view rows that were deleted.
        set_aside: The records that were set aside, by what is wrong with them.
        seconds: The seconds by step.
        lag_offsets: The offsets that wait.
        lag_seconds: The age of the oldest record that waits.
        published: The records that were written to view topics.

    Examples:
        >>> [batch.upserts for batch in runner.catch_up()]
        [500, 12]
    """

    records: int
    staged: int = 0
    affected: int = 0
    upserts: int = 0
    retractions: int = 0
    set_aside: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    lag_offsets: int = 0
    lag_seconds: float = 0.0
    published: int = 0

    @property
    def total_seconds(self) -> float:
        """The seconds of all steps."""
        return sum(self.seconds.values())

    def add(self, parts: Sequence[BatchReport]) -> None:
        """Add what was done side by side: a step took as long as it took in the slowest."""
        for part in parts:
            self.affected += part.affected
            self.upserts += part.upserts
            self.retractions += part.retractions
        for step in {step: None for part in parts for step in part.seconds}:
            took = max(part.seconds.get(step, 0.0) for part in parts)
            self.seconds[step] = self.seconds.get(step, 0.0) + took

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of the block to a step."""
        begun = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun


@dataclass(frozen=True)
class LiveBatches:
    """The batches of one run; ``log`` and ``queries`` are the runner's to close."""

    environment: Connections
    log: OpenLog
    group: ProjectionGroup
    run: Run
    layout: GenerationLayout
    queries: PreparedQueries
    reduction: Reduction
    disclosure: Disclosure
    aside: SetAside = field(default_factory=SetAside.nothing)

    @staticmethod
    def of(
        environment: Connections,
        log: OpenLog,
        group: ProjectionGroup,
        run: Run,
        layout: GenerationLayout,
        queries: PreparedQueries,
    ) -> LiveBatches:
        """The batches by the schemas that are registered now."""
        registry = environment.log.schemas(group.avro_changelogs)
        disclosure = Disclosure(registry, environment.keys)
        return LiveBatches(environment, log, group, run, layout, queries, Reduction(registry), disclosure)

    def with_schemas(self, registry: Mapping[int, RegisteredSchema]) -> LiveBatches:
        """The batches of the same run; everything that depends on the known schemas is planned again."""
        self.queries.forget()
        disclosure = Disclosure(registry, self.environment.keys)
        return dataclasses.replace(self, reduction=Reduction(registry), disclosure=disclosure)

    def without(self, aside: SetAside) -> LiveBatches:
        """The same batches without records that are set aside; what they are is committed with the progress."""
        return dataclasses.replace(self, aside=aside)

    @property
    def _store(self) -> TableStore:
        return self.environment.store

    @property
    def tables(self) -> Sequence[TableLayout]:
        """The tables that they keep."""
        return list(self.layout.tables.values())

    def streams_with_gaps(self, place: TableLayout) -> list[tuple[str, int]]:
        """From the rows that the last failed attempt staged."""
        with self._store.transaction() as connection:
            return staging.streams_with_gaps(connection, place)

    def apply(self, offsets: OffsetRange) -> BatchReport:
        """Carry one range into the views, or raise and leave everything as it was."""
        report = BatchReport(offsets.records)
        with described(f"projection group {self.group.name}"):
            with report.step("prepare"), self._store.staging(self.run) as connection:
                mark = staging.begin(connection, self.layout)
                floor = forgetting.floor(connection, self.layout)
            changed = self._stage(offsets, floor, report)
            for views in self.layout.levels if changed else ():
                report.add(_side_by_side(self._stage_view, views))
        with report.step("commit"), self._store.transaction() as connection:
            commit_batch(connection, self.layout, self.run, start=offsets.start, end=offsets.end, mark=mark)
            note_set_aside(connection, self.layout, self.aside)
            report.set_aside = note_late(connection, self.layout)
        return report

    def plan(self) -> None:
        """Plan the queries of small batches and load the classes that they need, over no rows."""
        raw = self.log.fetch(OffsetRange({}, {}), headed=bool(self.group.headed_topics))
        with described(f"projection group {self.group.name}"):
            with self._store.staging(self.run) as connection:
                staging.begin(connection, self.layout)
            _side_by_side(lambda table: self._stage_table(table, raw, None, rows=0), self.tables)
            _side_by_side(self._plan_view, list(self.layout.views.values()))

    def _plan_view(self, view: ViewLayout) -> None:
        with _described(self.group, view):
            if view.partials is not None:
                self._add_up(view, view.partials, BatchReport(0))
            self._compute(view, dict.fromkeys(view.roles, 0), BatchReport(0))

    def _stage(self, offsets: OffsetRange, floor: int | None, report: BatchReport) -> bool:
        """Fill the staging tables; returns whether anything is newer than the state."""
        with report.step("read"):
            raw = read_records(self.environment, self.log, offsets, aside=self.aside, headed=self.group.headed_topics)
            records = left_out(raw, self.aside)

        def stage(place: TableLayout) -> int:
            topic = place.table.topic
            return self._stage_table(place, records[topic], floor, rows=offsets.only(topic).records)

        if tables := [place for place in self.tables if place.table.topic in records]:
            with report.step("stage"):
                report.staged = sum(_side_by_side(stage, tables))
        return report.staged + self._stage_destroyed(records.get(ERASURES)) > 0

    def _stage_late(self, place: TableLayout, raw: Rows, floor: int | None, rows: int) -> None:
        """Stage the events that a stream with a promise has no rows of: too late by their records, or forgotten."""
        stream, retained_tables = place.table, self.layout.retained
        if isinstance(stream, EventStream) and retained_tables is not None:
            inputs, target = {"raw": with_floor(raw, floor)}, self._target(retained_tables.late)
            name = f"late.{place.staged.name}"
            self._write(name, lambda frames: self.reduction.late(frames["raw"], stream), inputs, target, rows=rows)

    def _stage_destroyed(self, records: Rows | None) -> int:
        """Note the keys of erased persons; returns how many."""
        if records is None:
            return 0
        rows = records if isinstance(records, pa.Table) else records.toArrow()
        keys = [key.hex() for key in rows["key"].to_pylist()]
        with self._store.staging(self.run) as connection:
            staging.stage_destroyed(connection, self.layout, keys)
        return len(keys)

    def _stage_table(self, tables: TableLayout, raw: Rows, floor: int | None, *, rows: int) -> int:
        store, table = self._store, tables.table
        inputs = {"raw": raw}
        kind = kind_of(table)
        if isinstance(kind, EvolvedFold):
            inputs["stored"] = self._stored_rows(raw, tables, kind, rows)

        def staged(frames: Mapping[str, DataFrame]) -> DataFrame:
            stored = in_table_order(frames["stored"], staging.stored_columns(table)) if "stored" in frames else None
            return self.reduction.reduce(frames["raw"], table, stored)

        written = self._write(f"table.{tables.staged.name}", staged, inputs, self._target(tables.staged), rows=rows)
        with store.staging(self.run) as connection:
            are_late = forgetting.leave_out(connection, self.layout, tables)
            staging.complete(connection, tables)
        if are_late:
            self._stage_late(tables, raw, floor, rows)
        return written

    def _stored_rows(self, raw: Rows, tables: TableLayout, kind: EvolvedFold, rows: int) -> Rows:
        """The state rows of the streams in the range, through the table's own (still empty) working tables."""
        store = self._store
        keys, target = lambda frames: kind.keys_of(frames["raw"]), self._target(tables.wanted)
        self._write(f"keys.{tables.wanted.name}", keys, {"raw": raw}, target, rows=rows)
        with store.staging(self.run) as connection:
            known = staging.stored_slice(connection, tables)
        return self._read(store.target(tables.stored), staging.stored_columns(kind.table), rows=known)

    def _stage_view(self, view: ViewLayout) -> BatchReport:
        walk, store, report = plan(view.definition), self._store, BatchReport(0)
        with _described(self.group, view):
            with report.step("slices"), store.staging(self.run) as connection:
                report.affected = find_affected(connection, self.layout, view, walk)
                added_up = view.partials is not None
                sizes = cut_slices(connection, view, walk) if report.affected and not added_up else {}
            if not report.affected:
                return report
            if view.partials is None:
                self._compute(view, sizes, report)
            elif self._add_up(view, view.partials, report):
                self._compute(view, self._marked_slices(view, walk, report), report)
            with report.step("difference"), store.staging(self.run) as connection:
                frozen = forgetting.frozen_before(connection, self.layout, view)
                report.upserts, report.retractions = stage_difference(connection, view, walk, frozen=frozen)
        return report

    def _add_up(self, view: ViewLayout, partials: PartialLayout, report: BatchReport) -> bool:
        """Bring partial aggregates forward by the changed rows; returns whether it marked groups to compute whole."""
        store = self._store
        with report.step("slices"), store.staging(self.run) as connection:
            sizes = cut_changes(connection, view, partials)

        def result(frames: Mapping[str, DataFrame]) -> DataFrame:
            typed = {name: in_table_order(frames[name], columns) for name, columns in partials.columns.items()}
            return brought_forward(view.definition, typed, view.stored_columns)

        with report.step("view"):
            columns = partials.columns
            inputs = {n: self._read(store.target(t), columns[n], rows=sizes[n]) for n, t in partials.tables.items()}
            self._write(f"changes.{view.name}", result, inputs, self._target(view.result), rows=report.affected)
        with store.staging(self.run) as connection:
            return has_marked(connection, view)

    def _marked_slices(self, view: ViewLayout, walk: ViewPlan, report: BatchReport) -> dict[str, int]:
        """Cut the slices of the groups that are marked."""
        with report.step("slices"), self._store.staging(self.run) as connection:
            sizes = cut_slices(connection, view, walk)
            drop_marked(connection, view)
        return sizes

    def _compute(self, view: ViewLayout, sizes: Mapping[str, int], report: BatchReport) -> None:
        """Run the function over slices of so many rows."""
        self.group.require_few(view.definition, sum(sizes.values()))
        store = self._store

        def result(frames: Mapping[str, DataFrame]) -> DataFrame:
            if view.near is not None:
                return differing(view.definition, frames, view.stored_columns)
            typed = {name: in_table_order(frames[name], role.table.opened) for name, role in view.roles.items()}
            return stored_columns(view.definition, typed, view.stored_columns)

        side = {} if view.near is None else {SIDE: LONG}
        with report.step("view"):
            slices = {
                name: self.disclosure.opened(
                    self._read(store.target(role.slice), {**role.table.sliced, **side}, rows=sizes[name]), role.table
                )
                for name, role in view.roles.items()
            }
            self._write(f"view.{view.name}", result, slices, self._target(view.result), rows=report.affected)

    def _target(self, table: sa.Table) -> Target:
        """Where the batch writes: a process that claims the run waits for the write, and then empties the table."""
        return self._store.target(table, self.run)

    def _read(self, target: Target, columns: Mapping[str, ColumnType], *, rows: int) -> Rows:
        if are_few(rows):
            return fetched(target, columns)
        return read(self.environment.spark, target, columns)

    def _write(self, name: str, build: Build, inputs: Mapping[str, Rows], target: Target, *, rows: int) -> int:
        """Append a query's rows to a table: few through the driver and a plan made once, many by the executors."""
        few = {n: given for n, given in inputs.items() if isinstance(given, pa.Table)}
        if len(few) < len(inputs):
            spark = self.environment.spark
            frames = {n: few_rows(spark, g) if isinstance(g, pa.Table) else g for n, g in inputs.items()}
            return write(build(frames), target, rows=rows)
        result = self.queries.run(name, build, few)
        return target.append(result) if result.num_rows else 0


def _side_by_side(work: Callable[[T], R], places: Sequence[T]) -> list[R]:
    """Do the same for several places that do not need each other: a small Spark job is planned for most of its time."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return list(pool.map(work, places))


def _described(group: ProjectionGroup, view: ViewLayout) -> AbstractContextManager[None]:
    return described(f"projection group {group.name}, {view.definition.place}")
