"""Which records of a range are bad, and why: asked once a batch has failed, of all its records in a few queries.

A round asks the tables of every topic one question after the other, and ends with the first one that has a result. Each
question assumes that the earlier ones have none.

Events that are no rows of a stream any more are too late by their records, or from a time that is forgotten.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.connections import Connections
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.streams import EventStream
from projections.declaring.tables import Table
from projections.errors import RecordNotUnpacked
from projections.logs import set_aside
from projections.logs.offsets import OffsetRange
from projections.logs.ranges import around, not_unpacked_in
from projections.logs.set_aside import FAULTS, SetAside, require_bearable
from projections.spark.bulk import read_whole
from projections.spark.events.decode import stream_of_key, version_text
from projections.spark.events.facts import FLOOR
from projections.spark.exchange import few_rows
from projections.spark.failures import FAULT, described, described_each, fault
from projections.spark.kinds import Reduction, kind_of
from projections.spark.reading.records import Rows, without
from projections.spark.table_kind import Step


class Judge:
    """Finds bad records by the schemas that are registered now; ``small`` is a session for few rows."""

    def __init__(self, registry: Mapping[int, RegisteredSchema], small: SparkSession) -> None:
        self._registry = registry
        self._small = small

    def faults(self, table: Table, raw: Rows) -> SetAside:
        """The bad ones among a topic's raw records, as one table of the topic sees them."""
        for question in kind_of(table).questions(self._registry):
            if aside := self._asked(question, raw):
                return aside
        return SetAside.nothing()

    def behind_gaps(self, raw: Rows, known: pa.Table) -> SetAside:
        """The records that cannot be applied for want of an earlier version of their stream.

        ``known`` holds streams (`stream`) and the version that each stands at (`at`, -1 for none).
        """

        def question(records: DataFrame) -> DataFrame:
            return behind_gaps(records, few_rows(records.sparkSession, known))

        return self._asked(question, raw)

    def _asked(self, question: Step, raw: Rows) -> SetAside:
        records = few_rows(self._small, raw) if isinstance(raw, pa.Table) else raw
        return SetAside.of(no_more_than_bearable(described_each(question(records))).cast(FAULTS))


def no_more_than_bearable(bad: DataFrame) -> pa.Table:
    """The bad records or streams; ProjectionError."""
    rows = bad.limit(set_aside.MOST_BAD + 1).toArrow()
    require_bearable(rows.num_rows)
    return rows


def behind_gaps(records: DataFrame, known: DataFrame) -> DataFrame:
    """The records of streams in ``known`` that come after a missing version: their places, and a column `_fault`."""
    version = version_text().try_cast("bigint")
    places = records.select("topic", "partition", "offset", stream_of_key().alias("stream"), version.alias("version"))
    newer = places.join(known, "stream").where(F.col("version") > F.col("at"))
    # Versions that follow each other have ranks that do; a repeated record has its first one's.
    rank = F.dense_rank().over(Window.partitionBy("stream").orderBy("version"))
    ranked = newer.withColumn("after", F.col("at") + rank).where(F.col("version") > F.col("after"))
    missing = F.concat(F.col("stream"), F.lit("@"), F.col("version").cast("string"))
    return ranked.select("topic", "partition", "offset", fault("behind_a_gap", missing).alias(FAULT))


def bad_records(
    environment: Connections,
    group: ProjectionGroup,
    offsets: OffsetRange,
    registry: Mapping[int, RegisteredSchema],
    *,
    known: SetAside,
) -> SetAside:
    """The records of a log that its folds would refuse, those behind a gap of their stream included.

    None, without a look, where the group tolerates none: its folds refuse them. Otherwise the log is decoded once more.
    Batches ``known`` not to be unpacked are not read.
    """
    if group.bad_records == "fail":
        return SetAside.nothing()
    judge, read = Judge(registry, environment.small), offsets.without(ERASURES)
    try:
        return _judged(environment, group, read, judge, known)
    except RecordNotUnpacked:
        with environment.log.open() as log:
            unreadable = [known, *(not_unpacked_in(log, piece) for piece in around(read, known))]
        return _judged(environment, group, read, judge, functools.reduce(operator.or_, unreadable))


def _judged(
    environment: Connections, group: ProjectionGroup, offsets: OffsetRange, judge: Judge, aside: SetAside
) -> SetAside:
    """What was found, and what is bad of the records that can be read without it."""
    with described(f"projection group {group.name}"):
        raw = read_whole(environment, offsets, aside=aside, headed=group.headed_topics)
        for table in group.tables.values():
            aside |= _bad_of(table, _left(raw[table.topic], aside.of_topic(table.topic)), judge)
    return aside


def _bad_of(table: Table, raw: DataFrame, judge: Judge) -> SetAside:
    bad = SetAside.nothing()
    while more := judge.faults(table, _left(raw, bad)):
        bad |= more
    if table.is_dense:
        left = _left(raw, bad)
        bad |= judge.behind_gaps(left, no_more_than_bearable(with_gaps(left)))
    return bad


def _left(raw: DataFrame, aside: SetAside) -> DataFrame:
    return without(raw, aside) if aside else raw


def with_gaps(records: DataFrame) -> DataFrame:
    """The streams of whole histories that lack a version (`stream`), each at its beginning (`at` is -1).

    Not deleted ones: compaction takes their events away one by one.
    """
    version = version_text().try_cast("bigint")
    deleted = F.col("value").isNull().alias("deleted")
    events = records.select(stream_of_key().alias("stream"), version.alias("version"), deleted)
    whole = events.groupBy("stream").agg(
        F.max("version").alias("last"), F.count_distinct("version").alias("count"), F.max("deleted").alias("deleted")
    )
    return whole.where("NOT deleted AND count < last + 1").select("stream", F.lit(-1).cast("bigint").alias("at"))


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
