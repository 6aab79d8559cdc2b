"""The raw records of a live batch, by topic: read by the driver when few, by the executors when many."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from projections.connections import Connections
from projections.logs.offsets import OffsetRange
from projections.logs.port import OpenLog, record_schema
from projections.logs.ranges import around
from projections.logs.set_aside import SetAside
from projections.spark.exchange import are_few, few_rows

Rows: TypeAlias = "pa.Table | DataFrame"


def read_records(
    environment: Connections,
    log: OpenLog,
    offsets: OffsetRange,
    *,
    aside: SetAside,
    headed: Collection[str] = (),
) -> Mapping[str, Rows]:
    """The committed records of the range, for each topic that has any offsets in it.

    Those of the topics in ``headed`` come with the time and the id of their event (``ce_time``, ``ce_id``). Batches set
    ``aside`` as not unpacked are not read; other records set aside are. RecordNotUnpacked.
    """
    if not are_few(offsets.records):
        topics = [t for t in offsets.changed_topics() if any(p.only(t).records for p in around(offsets, aside))]
        return {t: scanned(environment, offsets.only(t), aside, headed=t in headed) for t in topics}
    records = fetched(log, offsets, aside, headed=bool(headed))
    return {t: records.filter(pc.equal(records["topic"], t)) for t in pc.unique(records["topic"]).to_pylist()}


def fetched(log: OpenLog, offsets: OffsetRange, aside: SetAside, *, headed: bool) -> pa.Table:
    """A small range by the driver, around batches that are set aside as not unpacked; RecordNotUnpacked."""
    return pa.concat_tables([log.fetch(piece, headed=headed) for piece in around(offsets, aside)])


def scanned(environment: Connections, offsets: OffsetRange, aside: SetAside, *, headed: bool) -> DataFrame:
    """A large range by the executors, around such batches."""
    pieces = [piece for piece in around(offsets, aside) if piece.records]
    if not pieces:
        return environment.spark.createDataFrame([], record_schema(headed=headed))
    frames = [environment.log.scan(environment.spark, piece, headed=headed) for piece in pieces]
    return functools.reduce(lambda one, other: one.unionByName(other), frames)


def left_out(records: Mapping[str, Rows], aside: SetAside) -> Mapping[str, Rows]:
    """The records, by topic, without those set aside; a topic of which nothing is left has none."""
    if not aside:
        return records
    remaining = {topic: _left_out(rows, aside.of_topic(topic)) for topic, rows in records.items()}
    return {topic: rows for topic, rows in remaining.items() if not isinstance(rows, pa.Table) or rows.num_rows}


def _left_out(rows: Rows, aside: SetAside) -> Rows:
    if isinstance(rows, pa.Table):
        return aside.left_out_of(rows)
    return without(rows, aside) if aside else rows


def without(rows: DataFrame, aside: SetAside) -> DataFrame:
    """Records of one topic without those set aside, which every executor is given.

    Not an anti-join: Spark moves filters below one, and a filter over what a decoder refuses would fail the query for
    the very records that are left out. Here key and value depend on both sides, so that no such filter can pass.
    """
    places = few_rows(rows.sparkSession, aside.faults.select(["partition", "offset"])).withColumn("_bad", F.lit(True))
    joined = rows.join(F.broadcast(places), ["partition", "offset"], "left")
    good = F.col("_bad").isNull()
    columns = [F.when(good, F.col(c)).alias(c) if c in ("key", "value") else F.col(c) for c in rows.columns]
    return joined.select(*columns, "_bad").where("_bad IS NULL").drop("_bad")
