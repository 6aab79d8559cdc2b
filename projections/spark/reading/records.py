"""The raw records of a live batch, by topic: read by the driver when few, by the executors when many.

The whole log of a group goes from the beginning of its topics to their present ends.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from projections.connections import Connections
from projections.declaring.group import ProjectionGroup
from projections.errors import OffsetsLost, ProjectionError, keys_missing
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import OpenLog, record_schema
from projections.logs.ranges import around, open_boundaries
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


def whole_log(environment: Connections, group: ProjectionGroup, *, served: Offsets | None = None) -> OffsetRange:
    """Every committed record of the group's topics; with ``transactions``, up to the last that is known to have ended.

    Raises TopicMissing, BrokerUnreachable, OffsetsLost or KeysMissing. Raises ProjectionError where that is before what
    is ``served``, or a topic loses versions.
    """
    require_inputs(environment, group)
    with environment.log.open() as reader:
        topics = list(group.inputs)
        beginning, ends = reader.beginning_offsets(topics), reader.end_offsets(topics)
        if group.transactions:
            with open_boundaries(environment.log, group) as boundaries:
                whole = boundaries.latest(beginning, ends)
            require_served(served or {}, whole, ends, group=group.name)
            ends = whole
        return from_the_beginning(beginning, ends)


def require_served(served: Offsets, whole: Offsets, ends: Offsets, *, group: str) -> None:
    """Raise ProjectionError where whole transactions end before what is served, in a topic that still holds it.

    A topic that ends before was recreated.
    """
    for topic, parts in whole.items():
        for partition, end in parts.items():
            if end < served.get(topic, {}).get(partition, 0) <= ends[topic][partition]:
                raise ProjectionError(
                    f"group {group!r} serves {served[topic][partition]} offsets, and the source's transactions "
                    f"are complete only up to {end}",
                    remedy="wait for the open transaction to end. If its marks were removed or switched off, wait for "
                    "the next one, or omit ProjectionGroup(transactions=…)",
                    place=f"topic {topic}, partition {partition}",
                    code="end-not-known",
                )


def require_inputs(environment: Connections, group: ProjectionGroup) -> None:
    """Raise KeysMissing if personal columns cannot be opened, ProjectionError if a topic of versions is compacted.

    A later rebuild would find fewer versions.
    """
    if group.personal and environment.keys is None:
        raise keys_missing(place=f"projection group {group.name}")
    for topic, policy in environment.log.cleanup_policies(group.history_topics).items():
        if "compact" in policy:
            raise ProjectionError(
                f"versions are read from the topic, and its cleanup.policy={policy} deletes older changes",
                remedy="capture the table with PostgresSource(history=(…)), or set cleanup.policy=delete and"
                " retention.ms=-1 on the topic before it is compacted",
                place=f"topic {topic}",
                code="history-not-retained",
            )


def from_the_beginning(beginning: Offsets, ends: Offsets) -> OffsetRange:
    """The range up to the given ends, when the topics still begin where they began; else OffsetsLost.

    Compaction leaves a topic's beginning at 0; only retention by time or size, or a deletion of records, moves it.
    """
    for topic, offsets in beginning.items():
        for partition, first in offsets.items():
            if first > 0:
                raise OffsetsLost(
                    f"the topic no longer begins at its beginning: {first} offsets have been removed",
                    remedy="publish it again. Event and changelog topics are compacted and retained without limit",
                    place=f"topic {topic}, partition {partition}",
                )
    return OffsetRange(beginning, ends)
