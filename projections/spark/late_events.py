"""The events that are no rows of a stream any more: too late by their records, or from a time that is forgotten."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.connections import Connections
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.streams import EventStream
from projections.logs.offsets import OffsetRange
from projections.logs.set_aside import SetAside
from projections.spark.bulk import read_whole
from projections.spark.events.facts import FLOOR
from projections.spark.kinds import Reduction
from projections.spark.reading.records import Rows, without


def with_floor(raw: Rows, floor: int | None) -> Rows:
    """Raw records, few or many, with the floor of their generation as a column."""
    if isinstance(raw, pa.Table):
        return raw.append_column(FLOOR, pa.array([floor] * raw.num_rows, pa.int64()))
    return floored(raw, floor)


def floored(raw: DataFrame, floor: int | None) -> DataFrame:
    """The same of many."""
    return raw.withColumn(FLOOR, F.lit(floor).cast("bigint"))


def late_in_log(
    environment: Connections,
    group: ProjectionGroup,
    offsets: OffsetRange,
    registry: Mapping[int, RegisteredSchema],
    *,
    aside: SetAside,
) -> DataFrame | None:
    """Those that come too late in a whole log, where nothing is forgotten yet; None where no stream has a promise.

    Records set ``aside`` are left out.
    """
    streams = [t for t in group.tables.values() if isinstance(t, EventStream) and t.retain is not None]
    if not streams:
        return None
    raw = read_whole(environment, offsets.without(ERASURES), aside=aside, headed=group.headed_topics)
    reduction, late = Reduction(registry), []
    for stream in streams:
        ours = aside.of_topic(stream.topic)
        rows = without(raw[stream.topic], ours) if ours else raw[stream.topic]
        late.append(reduction.late(floored(rows, None), stream))
    return functools.reduce(lambda one, other: one.unionByName(other), late)
