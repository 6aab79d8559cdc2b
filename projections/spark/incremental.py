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
from projections.spark.kafka_source import BULK, LIVE, OffsetRange, read_range
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
            changed = self._stage(offsets, report)
            for view in self.group.views if changed else ():
                self._stage_view(view, report)
        with report.step("commit"), self.environment.store.transaction() as connection:
            commit_batch(connection, self.layout, self.run, start=offsets.start, end=offsets.end)
        return report

    def _stage(self, offsets: OffsetRange, report: BatchReport) -> bool:
        """Fill the staging tables; returns whether anything is newer than the state."""
        store, moved = self.environment.store, set(offsets.changed_topics())
        with report.step("prepare"), store.staging() as connection:
            staging.empty(connection, self.layout.working_tables())
        tables = [t for t in self.layout.tables.values() if t.table.topic in moved]
        with report.step("stage"), ThreadPoolExecutor(max_workers=len(tables)) as pool:
            # Side by side: a small Spark job leaves most of its time to planning and to waiting for the broker.
            staged = pool.map(lambda t: self._stage_table(t, offsets.only(t.table.topic)), tables)
            report.staged = sum(staged)
        return report.staged > 0

    def _stage_table(self, tables: TableLayout, offsets: OffsetRange) -> int:
        environment = self.environment
        raw = self._read(offsets)
        stored = self._stored_rows(raw, tables, offsets) if needs_stored_state(tables.table) else None
        staged = self.reduction.reduce(raw, tables.table, stored)
        rows = write(staged, environment.store.target(tables.staged), rows=offsets.records)
        with environment.store.staging() as connection:
            staging.complete(connection, tables)
        return rows

    def _read(self, offsets: OffsetRange) -> DataFrame:
        client = self.environment.settings.kafka.jvm()
        if offsets.records > DRIVER_ROWS:
            return read_range(self.environment.spark, client, offsets, options=BULK)
        # A fixed group lets the executors keep their consumers from one batch to the next; nothing is committed to it.
        options = {**LIVE, "kafka.group.id": f"factfold-{self.group.name}"}
        return read_range(self.environment.small, client, offsets, options=options).coalesce(1)

    def _stored_rows(self, raw: DataFrame, tables: TableLayout, offsets: OffsetRange) -> DataFrame:
        """The state rows of the streams in the range, through the table's own (still empty) working tables."""
        store, table = self.environment.store, tables.table
        if not isinstance(table, EventTable):
            raise TypeError(f"no stored fold for {type(table).__name__}")
        write(keys_of(raw, table), store.target(tables.affected), rows=offsets.records, marked=False)
        with store.staging() as connection:
            rows = staging.stored_slice(connection, tables)
        session = self._session(offsets.records)
        return read(session, store.target(tables.stored), staging.stored_columns(table), rows=rows)

    def _session(self, rows: int) -> SparkSession:
        return self.environment.small if rows <= DRIVER_ROWS else self.environment.spark

    def _stage_view(self, view: View, report: BatchReport) -> None:
        walk, layout, store = plan(view), self.layout, self.environment.store
        with report.step("slices"), store.staging() as connection:
            staging.empty(connection, [t for n in view.tables for t in (layout.tables[n].affected, layout.tables[n].slice)])
            affected = staging.find_affected(connection, layout, walk)
            sizes = staging.cut_slices(connection, layout, walk) if affected else {}
        report.affected += affected
        if affected:
            with report.step("view"):
                self._write_result(view, sizes, affected)
            with report.step("difference"), store.staging() as connection:
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
