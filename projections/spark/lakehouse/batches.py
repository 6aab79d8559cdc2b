"""One live batch on Delta: everything is computed before anything is written, and the ledger's row is written last.

    read      the ledger's row: our token, where the batch starts, the versions of all tables
    compute   from records and from the tables at those versions: rows of the state, changes of the views
    write     the tables that change, in parallel; readers open only versions that the ledger names
    commit    the ledger's row: where the batch ends, and the new versions

After a kill in between, the next batch reads the ledger's versions again, and first reverts what was written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.connections import Connections
from projections.declaring.any_table import AnyTable
from projections.declaring.group import ProjectionGroup
from projections.declaring.tables import EventTable, Table
from projections.declaring.views import ViewTable
from projections.logs.offsets import OffsetRange
from projections.logs.port import OpenLog
from projections.logs.set_aside import SetAside
from projections.planning.planner import plan
from projections.spark.exchange import few_rows, in_table_order
from projections.spark.failures import described
from projections.spark.lakehouse.aside import merge_set_aside
from projections.spark.lakehouse.completing import Staged
from projections.spark.lakehouse.differences import ViewChange, change_of
from projections.spark.lakehouse.materialized import within
from projections.spark.lakehouse.places import DeltaGeneration, DeltaViewPlace, StatePlace
from projections.spark.lakehouse.reach import Reach, RoleRows
from projections.spark.lakehouse.store import DeltaTableStore, require_at
from projections.spark.lakehouse.versioned import VersionedTable
from projections.spark.live.incremental import BatchReport
from projections.spark.reading.inputs import Reduction, keys_of, needs_stored_state
from projections.spark.reading.records import left_out, read_records
from projections.spark.views.frames import call
from projections.stores.horizon import Passed
from projections.stores.runs import Run
from projections.stores.staging import stored_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from projections.spark.reading.records import Rows

Write = Callable[[], int]


@dataclass(frozen=True, kw_only=True)
class DeltaBatches:
    """The batches of one run; ``gaps`` are those that the attempt that failed last has found, by table."""

    environment: Connections
    store: DeltaTableStore
    log: OpenLog
    group: ProjectionGroup
    run: Run
    layout: DeltaGeneration
    reduction: Reduction
    views: bool = True
    aside: SetAside = field(default_factory=SetAside.nothing)
    gaps: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    @property
    def tables(self) -> Sequence[StatePlace]:
        """The tables that they keep."""
        return list(self.layout.tables.values())

    def without(self, aside: SetAside) -> DeltaBatches:
        """The same batches without records that are set aside; what they are is committed with the progress."""
        return dataclasses.replace(self, aside=aside)

    def with_schemas(self, registry: Mapping[int, RegisteredSchema]) -> DeltaBatches:
        """The same batches by the schemas known now."""
        return dataclasses.replace(self, reduction=Reduction(registry))

    def streams_with_gaps(self, place: StatePlace) -> list[tuple[str, int]]:
        """Those that the attempt that failed last has found."""
        return self.gaps.get(place.state.name, [])

    def apply(self, offsets: OffsetRange) -> BatchReport:
        """Carry one range into the views, or raise and leave everything as readers see it; RunSuperseded."""
        report = BatchReport(offsets.records)
        with described(f"projection group {self.group.name}"):
            with report.step("prepare"):
                entry = require_at(self.store.entry(self.run), self.run, offsets.start)
                passed, base = self.store.passed(self.run, entry), entry.tables
            batch = DeltaBatch(self, base, passed, report, self.store.session(offsets.records))
            writes = batch.worked_out(offsets)
            with report.step("write"):
                versions = _written(writes)
        with report.step("commit"):
            self.store.advance(self.run, start=offsets.start, end=offsets.end, tables=versions, base=base)
        return report


def _written(writes: Mapping[str, Write]) -> dict[str, int]:
    """Write tables in parallel: a merge of few rows mostly waits for jobs to be planned."""
    if not writes:
        return {}
    with ThreadPoolExecutor(max_workers=len(writes)) as pool:
        return dict(zip(writes, pool.map(lambda write: write(), writes.values()), strict=True))


@dataclass
class DeltaBatch:
    """One batch at work, over tables at the versions of ``base``; ``passed`` says how far they have lost rows."""

    batches: DeltaBatches
    base: Mapping[str, int]
    passed: Mapping[str, Passed]
    report: BatchReport
    spark: SparkSession
    stored: dict[str, DataFrame] = field(default_factory=dict)
    staged: dict[int, DataFrame] = field(default_factory=dict)
    changes: dict[str, ViewChange] = field(default_factory=dict)

    def worked_out(self, offsets: OffsetRange) -> dict[str, Write]:
        """Compute everything that the range changes; returns the writes by the names of the tables."""
        with self.report.step("read"):
            batches = self.batches
            raw = read_records(
                batches.environment, batches.log, offsets, aside=batches.aside, headed=batches.group.headed_topics
            )
            records = left_out(raw, batches.aside)
        with self.report.step("stage"):
            writes = self._all_staged(records)
        if self.report.staged and self.batches.views:
            for place in self.batches.layout.views.values():
                with described(f"projection group {self.batches.group.name}, {place.definition.place}"):
                    writes |= self._view_writes(place)
        if self.batches.aside:
            aside = self.batches.layout.aside
            writes[aside.name] = lambda: merge_set_aside(aside, self.batches.aside, at=self.base.get(aside.name))
        return writes

    def _all_staged(self, records: Mapping[str, Rows]) -> dict[str, Write]:
        """Compute the rows of every state that records change, in parallel: planning takes most of the time."""
        changed = [place for place in self.batches.tables if place.table.topic in records]
        if not changed:
            return {}
        with ThreadPoolExecutor(max_workers=len(changed)) as pool:
            writes = pool.map(lambda place: self._staged(place, records[place.table.topic]), changed)
            return {place.state.name: write for place, write in zip(changed, writes, strict=True) if write is not None}

    def _staged(self, place: StatePlace, raw: Rows) -> Write | None:
        stored = self._stored(place.state)
        rows = few_rows(self.spark, raw) if isinstance(raw, pa.Table) else raw
        passed = self.passed.get(self.batches.group.name_of(place.table))
        brought = Staged.of(self._reduced(rows, place.table, stored), place.table, stored, passed)
        self.batches.gaps[place.state.name] = [(row.key, int(row.known)) for row in brought.gaps]
        whole = brought.whole()
        self.report.staged += brought.joined.count
        if not whole.count:
            return None
        self.staged[id(place.table)] = whole.rows
        at = self.base[place.state.name]
        return lambda: place.state.on(self.spark).merge(whole.rows, place.table.row_key, at=at, count=whole.count)

    def _stored(self, table: VersionedTable) -> DataFrame:
        """The rows of a table at its version, looked up several times a batch: listed and planned once."""
        if table.name not in self.stored:
            self.stored[table.name] = table.listed(self.base[table.name], self.spark)
        return self.stored[table.name]

    def _reduced(self, raw: DataFrame, table: Table, stored: DataFrame) -> DataFrame:
        if not needs_stored_state(table):
            return self.batches.reduction.reduce(raw, table)
        assert isinstance(table, EventTable)  # noqa: S101 - nothing else is folded from its stored rows
        known = within(stored.where("NOT _deleted"), table.key, keys_of(raw, table))
        return self.batches.reduction.reduce(raw, table, in_table_order(known, stored_columns(table)))

    def _view_writes(self, place: DeltaViewPlace) -> dict[str, Write]:
        reach = Reach(place.definition, plan(place.definition), self._roles(place))
        with self.report.step("slices"):
            affected = reach.find()
        self.report.affected += affected
        if not affected:
            return {}
        with self.report.step("view"):
            result, stored = _result(place, reach), self._stored(place.view)
            change = self.changes[place.name] = change_of(place, result, stored, reach)
        self.report.upserts += change.upserts
        self.report.retractions += change.retractions
        if not change.rows.count:
            return {}
        rows, key = change.rows.rows.withColumnRenamed("_deleted", "_retracted"), place.definition.key
        at, nullable = self.base[place.view.name], place.definition.key_may_be_null
        return {
            place.view.name: lambda: place.view.on(self.spark).merge(
                rows, key, at=at, count=change.rows.count, nullable=nullable
            )
        }

    def _roles(self, place: DeltaViewPlace) -> dict[str, RoleRows]:
        return {name: self._role(place.definition.table(name)) for name in place.definition.tables}

    def _role(self, table: AnyTable) -> RoleRows:
        """Stored rows and what the batch does to them: of a table, or of a view that was computed before."""
        if isinstance(table, ViewTable):
            stored = self._stored(self.batches.layout.views[table.view.name].view)
            change = self.changes.get(table.view.name)
            return RoleRows(table, stored, change.rows.rows if change else _nothing(stored))
        stored = self._stored(next(place.state for place in self.batches.tables if place.table is table.whole))
        return RoleRows(table, stored, self.staged.get(id(table.whole), stored.limit(0)))


def _result(place: DeltaViewPlace, reach: Reach) -> DataFrame:
    """The view's function over the slices, as the view's columns are stored."""
    view = place.definition
    slices = {n: in_table_order(rows, view.table(n).opened) for n, rows in reach.slices().items()}
    return in_table_order(call(view, slices), place.columns)


def _nothing(stored: DataFrame) -> DataFrame:
    return stored.limit(0).withColumn("_deleted", F.lit(False))
