"""Whole tables at given offsets: what a rebuild loads and what verify recomputes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.connections import Connections
from projections.declaring.any_table import AnyTable
from projections.declaring.columns import ColumnType
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.views import View, view_behind
from projections.logs.offsets import OffsetRange
from projections.logs.set_aside import SetAside
from projections.spark.exchange import are_few, few_rows
from projections.spark.kinds import Reduction, kind_of
from projections.spark.reading.records import fetched, scanned, without
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.partials import stored_columns


class RecordCounts:
    """The records that the jobs of some threads have read from a log."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._own = uuid.uuid4().hex

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Count what the jobs that this thread starts inside the block read."""
        self._context.setJobGroup(self._group(name), f"factfold: {name}")
        try:
            yield
        finally:
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None takes it away

    def read(self, name: str) -> int:
        """The records read so far under a name."""
        tracker = self._context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group(name)))
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        return sum(self._input_of(stage) for stage in stages)

    def _input_of(self, stage: int) -> int:
        try:
            return int(self._context._jsc.sc().statusStore().lastStageAttempt(stage).inputRecords())  # noqa: SLF001
        except Py4JJavaError:  # Spark forgets old stages, and knows a new one only some milliseconds later
            return 0

    def _group(self, name: str) -> str:
        return f"factfold.{self._own}.{name}"


@dataclass(frozen=True)
class WholeTables:
    """Every table of a group as it stands at given offsets, deleted rows marked; ``few`` where the log is short.

    ``make`` gives a table by its name, at its first use: while one is loaded, others are still being planned.
    ``frames`` holds those that were used, ``views`` those that others read.
    """

    make: Callable[[str], DataFrame]
    group: ProjectionGroup
    disclosure: Disclosure
    small: SparkSession
    few: bool
    frames: dict[str, DataFrame] = field(default_factory=dict)
    views: dict[str, DataFrame] = field(default_factory=dict)

    def frame(self, name: str) -> DataFrame:
        """All rows of a table."""
        if name not in self.frames:
            self.frames[name] = self.make(name)
        return self.frames[name]

    def apply(self, view: View, columns: Mapping[str, ColumnType]) -> DataFrame:
        """The view function over whole tables, and partial aggregates among the columns, as they are stored."""
        if view.name not in self.views:
            rows = {name: self.rows(view.table(name)) for name in view.tables}
            frame = stored_columns(view, rows, columns)
            is_read = any(view.name == read.name for other in self.group.all_views for read in other.inputs)
            self.views[view.name] = persisted(frame) if is_read else frame
        return self.views[view.name]

    def release(self) -> None:
        """Release the persisted rows."""
        for frame in (*self.frames.values(), *self.views.values()):
            frame.unpersist()

    def rows(self, table: AnyTable) -> DataFrame:
        """The rows of a table or a view as a view function gets them, personal values opened."""
        view = view_behind(table)
        if view is not None:
            return self.apply(view, table.columns).select(*table.columns)
        rows = sliced_rows(self.frame(self.group.name_of(table)), table)
        if not table.personal:
            return rows
        opened = self.disclosure.opened(rows.toArrow() if self.few else rows, table)
        return few_rows(self.small, opened) if isinstance(opened, pa.Table) else opened


@contextmanager
def whole_tables(
    environment: Connections,
    group: ProjectionGroup,
    offsets: OffsetRange,
    registry: Mapping[int, RegisteredSchema],
    *,
    aside: SetAside | None = None,
) -> Iterator[WholeTables]:
    """The tables of a group at the end of the range, persisted for the block; without the records set aside."""
    reduction = Reduction(registry)
    aside = aside or SetAside.nothing()
    raw = read_whole(environment, offsets.without(ERASURES), aside=aside, headed=group.headed_topics)

    def reduced(name: str) -> DataFrame:
        table = group.tables[name]
        rows = raw[table.topic] if not aside else without(raw[table.topic], aside.of_topic(table.topic))
        return persisted(kind_of(table).complete(reduction.reduce(rows, table)))

    disclosure = Disclosure(registry, environment.keys)
    tables = WholeTables(reduced, group, disclosure, environment.small, are_few(offsets.records))
    try:
        yield tables
    finally:
        tables.release()


def read_whole(
    environment: Connections, offsets: OffsetRange, *, aside: SetAside, headed: Collection[str]
) -> dict[str, DataFrame]:
    """The records of every topic: of a short log by the driver and in one task, as a small live batch has them.

    Batches that are set ``aside`` as not unpacked are not read.
    """
    if not are_few(offsets.records):
        return {t: scanned(environment, offsets.only(t), aside, headed=t in headed) for t in offsets.end}
    with environment.log.open() as log:
        records = fetched(log, offsets, aside, headed=bool(headed))
    return {t: few_rows(environment.small, records.filter(pc.equal(records["topic"], t))) for t in offsets.end}


def sliced_rows(frame: DataFrame, table: AnyTable) -> DataFrame:
    """The rows that a slice of the whole table would hold: no deleted ones, unless they end a version."""
    rows = frame if "_deleted" in table.sliced else frame.where(~F.col("_deleted"))
    return rows.select(*table.sliced)


def persisted(frame: DataFrame) -> DataFrame:
    """Persist the rows of a frame from their first use on, until `unpersist`; other threads may run queries meanwhile.

    Spark compares the plan of every query with the persisted ones, and computes a plan's comparable form in the thread
    that needs it first. `from_avro` then reads its options from a map that no two threads may read at once
    (`ArrayBasedMapBuilder`: DUPLICATED_MAP_KEY). The form is computed here, before another thread can need it.
    """
    frame.semanticHash()
    return frame.persist()
