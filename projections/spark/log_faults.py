"""The bad records of a whole log, found before it is folded: a rebuild sets aside what live batches would have."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.connections import Connections
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.tables import Table
from projections.errors import RecordNotUnpacked
from projections.logs.offsets import OffsetRange
from projections.logs.set_aside import SetAside
from projections.logs.unpacking import around, not_unpacked_in
from projections.spark.bulk import read_whole
from projections.spark.events.decode import stream_of_key, version_text
from projections.spark.failures import described
from projections.spark.judging import Judge, no_more_than_bearable
from projections.spark.reading.records import without


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
