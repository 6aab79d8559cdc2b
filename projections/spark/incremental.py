"""One live batch: the changes of an offset range, carried into state and views at the cost of what they reach."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from projections.environment import Environment
from projections.group import ProjectionGroup
from projections.planner import plan
from projections.spark.exchange import DRIVER_ROWS, in_table_order, read, write
from projections.spark.failures import told_plainly
from projections.spark.inputs import Reduction, keys_of, needs_stored_state
from projections.spark.kafka_source import OffsetRange
from projections.spark.records import read_records
from projections.tables import EventTable
from projections.tablestore import staging
from projections.tablestore.commit import commit_batch
from projections.tablestore.layout import GenerationLayout, TableLayout
from projections.tablestore.runs import Run
from projections.views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class BatchReport:
    """What a batch did: offsets read, rows staged, view rows changed, and the seconds of each step."""

    records: int
    staged: int = 0
    affected: int = 0
    upserts: int = 0
    retractions: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of the block to a step."""
        begun = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun


@dataclass(frozen=True)
class LiveBatches:
    """The batches of one run; ``reduction`` is made anew when the registry has learnt a schema."""

    environment: Environment
    group: ProjectionGroup
    run: Run
    layout: GenerationLayout
    reduction: Reduction

    def apply(self, offsets: OffsetRange) -> BatchReport:
        """Carry one range into the views, or raise and leave everything as it was."""
        report = BatchReport(offsets.records)
        with told_plainly(f"projection group {self.group.name}"):
            with report.step("prepare"), self.environment.store.staging(self.run) as connection:
                mark = staging.begin(connection, self.layout)
            changed = self._stage(offsets, report)
            for view in self.group.views if changed else ():
                self._stage_view(view, report)
        with report.step("commit"), self.environment.store.transaction() as connection:
            commit_batch(connection, self.layout, self.run, start=offsets.start, end=offsets.end, mark=mark)
        return report

    def _stage(self, offsets: OffsetRange, report: BatchReport) -> bool:
        """Fill the staging tables; returns whether anything is newer than the state."""
        with report.step("read"):
            records = read_records(self.environment, offsets)
        tables = [t for t in self.layout.tables.values() if t.table.topic in records]
        if tables:
            with report.step("stage"), ThreadPoolExecutor(max_workers=len(tables)) as pool:
                # Side by side: a small Spark job spends most of its time on planning.
                report.staged = sum(pool.map(lambda t: self._stage_table(t, records[t.table.topic], offsets), tables))
        return report.staged > 0

    def _stage_table(self, tables: TableLayout, raw: DataFrame, offsets: OffsetRange) -> int:
        store, rows = self.environment.store, offsets.only(tables.table.topic).records
        stored = self._stored_rows(raw, tables, rows) if needs_stored_state(tables.table) else None
        staged = self.reduction.reduce(raw, tables.table, stored)
        written = write(staged, store.target(tables.staged), rows=rows)
        with store.staging(self.run) as connection:
            staging.complete(connection, tables)
        return written

    def _stored_rows(self, raw: DataFrame, tables: TableLayout, rows: int) -> DataFrame:
        """The state rows of the streams in the range, through the table's own (still empty) working tables."""
        store, table = self.environment.store, tables.table
        if not isinstance(table, EventTable):
            raise TypeError(f"no stored fold for {type(table).__name__}")
        write(keys_of(raw, table), store.target(tables.affected), rows=rows, marked=False)
        with store.staging(self.run) as connection:
            known = staging.stored_slice(connection, tables)
        return read(self._session(rows), store.target(tables.stored), staging.stored_columns(table), rows=known)

    def _session(self, rows: int) -> SparkSession:
        return self.environment.small if rows <= DRIVER_ROWS else self.environment.spark

    def _stage_view(self, view: View, report: BatchReport) -> None:
        walk, layout, store = plan(view), self.layout, self.environment.store
        with report.step("slices"), store.staging(self.run) as connection:
            staging.empty(
                connection, [t for n in view.tables for t in (layout.tables[n].affected, layout.tables[n].slice)]
            )
            affected = staging.find_affected(connection, layout, walk)
            sizes = staging.cut_slices(connection, layout, walk) if affected else {}
        report.affected += affected
        if affected:
            with report.step("view"):
                self._write_result(view, sizes, affected)
            with report.step("difference"), store.staging(self.run) as connection:
                upserts, gone = staging.stage_difference(connection, layout.tables[view.root], layout.views[view.name])
            report.upserts += upserts
            report.retractions += gone

    def _write_result(self, view: View, sizes: Mapping[str, int], affected: int) -> None:
        spark, store = self._session(max(sizes.values())), self.environment.store
        frames = [
            read(spark, store.target(self.layout.tables[name].slice), table.columns, rows=sizes[name])
            for name, table in view.tables.items()
        ]
        target = self.layout.views[view.name]
        write(in_table_order(view(*frames), target.columns), store.target(target.result), rows=affected)
