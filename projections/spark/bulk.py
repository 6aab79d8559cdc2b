"""Whole tables at given offsets: what a rebuild loads and what verify recomputes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eventstore.schema_registry import RegisteredSchema
from projections.environment import Environment
from projections.group import ProjectionGroup
from projections.spark.exchange import write
from projections.spark.failures import refuse
from projections.spark.inputs import Reduction
from projections.spark.kafka_source import BULK, OffsetRange, read_range
from projections.tables import EventTable, Table, set_at
from projections.tablestore.layout import POSITION, TableLayout
from projections.views import View

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@contextmanager
def reduced_topics(
    environment: Environment,
    group: ProjectionGroup,
    offsets: OffsetRange,
    registry: Mapping[int, RegisteredSchema],
) -> Iterator[dict[str, DataFrame]]:
    """Every table of the group as it stands at the end of the range, deleted rows marked, kept for the block's uses."""
    reduction = Reduction(registry)
    frames = {}
    for name, table in group.tables.items():
        raw = _read(environment, offsets.only(table.topic))
        frames[name] = _complete(reduction.reduce(raw, table), table).persist()
    try:
        yield frames
    finally:
        for frame in frames.values():
            frame.unpersist()


def _read(environment: Environment, offsets: OffsetRange) -> DataFrame:
    if offsets.records:
        return read_range(environment.spark, environment.settings.kafka.jvm(), offsets, options=BULK)
    schema = "topic string, partition int, offset bigint, key binary, value binary"
    return environment.spark.createDataFrame([], schema)


def _complete(staged: DataFrame, table: Table) -> DataFrame:
    """Refuse what only an earlier record could complete, and drop tombstones of keys that have no record left."""
    from pyspark.sql import functions as F

    columns = [*table.columns, *POSITION]
    deleted = F.col("_deleted")
    if isinstance(table, EventTable):
        gap = (F.col("_first") > 0) | (F.col("_count") < F.col("_pos") + 1)
        failure = _refuse_row("events_missing", table)
    else:
        staged = staged.where(F.col("_pos").isNotNull())
        unset = [F.col(set_at(c)).isNull() for c in table.sometimes_unset]
        gap = functools.reduce(operator.or_, unset, F.lit(False)) & ~deleted
        failure = _refuse_row("unavailable", table)
    return staged.select(*columns, F.when(gap, failure.cast("boolean")).otherwise(deleted).alias("_deleted"))


def _refuse_row(kind: str, table: Table) -> Column:
    from pyspark.sql import functions as F

    located = {"topic": F.lit(table.topic), "partition": F.lit(-1), "offset": F.col("_offset")}
    return refuse(kind, F.col(table.key[0]).cast("string"), place=located)


def live_rows(frame: DataFrame, table: Table) -> DataFrame:
    """The rows a view function sees: not deleted, without positions."""
    from pyspark.sql import functions as F

    return frame.where(~F.col("_deleted")).select(*table.columns)


def apply_view(view: View, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The view function over whole tables."""
    result: DataFrame = view(*(live_rows(frames[name], table) for name, table in view.tables.items()))
    return result


def load_state(environment: Environment, frame: DataFrame, layout: TableLayout, *, rows: int) -> int:
    """Load a table's rows into a generation that nobody reads yet; returns how many there were."""
    return write(frame, environment.store.target(layout.state), rows=rows, marked=False)
