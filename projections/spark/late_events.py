"""The events that are no rows of a stream any more: too late by their records, or from a time that is forgotten."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from eventstore.schema_registry import RegisteredSchema
from projections.environment import Environment
from projections.faults import FORGOTTEN, TIME_PREFIX
from projections.group import ERASURES, ProjectionGroup
from projections.logs.port import OffsetRange
from projections.set_aside import SetAside
from projections.spark.bulk import read_whole
from projections.spark.events.facts import FLOOR
from projections.spark.reading.inputs import Reduction
from projections.spark.reading.records import Rows, without
from projections.streams import EventStream
from projections.tablestore.port import ViewColumns
from projections.tablestore.runs import SERVING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_floor(raw: Rows, floor: int | None) -> Rows:
    """Raw records, few or many, with the floor of their generation as a column."""
    if isinstance(raw, pa.Table):
        return raw.append_column(FLOOR, pa.array([floor] * raw.num_rows, pa.int64()))
    return floored(raw, floor)


def floored(raw: DataFrame, floor: int | None) -> DataFrame:
    """The same of many."""
    from pyspark.sql import functions as F

    return raw.withColumn(FLOOR, F.lit(floor).cast("bigint"))


def late_in_log(
    environment: Environment,
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


def forgotten_by_serving(environment: Environment, group: ProjectionGroup, columns: ViewColumns) -> SetAside:
    """What the serving generation of this definition has set aside as forgotten: others are made without it too.

    Their rows were forgotten when they came. Another generation may still have such rows.
    """
    store, forgotten = environment.store, SetAside.nothing()
    for state in store.states(group.name, SERVING) if group.retention is not None else ():
        if state.run.fingerprint == group.fingerprint():
            forgotten |= environment.keeper.noted(state, store.layout(group, state.run, columns)).of_kind(FORGOTTEN)
    # What is noted is the message of each, which ends with its detail.
    detail = pc.replace_substring_regex(forgotten.faults["detail"], pattern=f"^.*{TIME_PREFIX}", replacement="")
    return SetAside(forgotten.faults.set_column(forgotten.faults.schema.get_field_index("detail"), "detail", detail))
