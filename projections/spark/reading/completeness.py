"""From where on a topic's past is whole: compaction removes a row's older records, and no offset shows which.

A compacted part of a topic has each key once. So it ends before the first record whose key came earlier, and a cut at
that record or behind it lacks nothing that was current there. A cut below which no offset is missing is whole anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from projections.connections import Connections
from projections.declaring.group import ProjectionGroup
from projections.errors import OffsetsLost
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.set_aside import SetAside
from projections.spark.bulk import read_whole


def require_complete(environment: Connections, group: ProjectionGroup, log: OffsetRange, cut: Offsets) -> None:
    """Raise OffsetsLost if compaction may have removed rows that were current at the cut.

    ``log`` is the whole log. Events have keys of their own, and compaction removes none of them.
    """
    captured = {table.topic for table in group.tables.values() if table.category is None}
    policies = environment.log.cleanup_policies(captured) if captured else {}
    for topic in (topic for topic, policy in policies.items() if "compact" in policy):
        _require_complete(environment, topic, log.only(topic), cut)


def _require_complete(environment: Connections, topic: str, log: OffsetRange, cut: Offsets) -> None:
    records = read_whole(environment, log, aside=SetAside.nothing(), headed=())[topic].select(
        "partition", "offset", "key"
    )
    for partition in _with_gaps(records, topic, log.start, cut):
        end = log.end[topic][partition]
        first = _first_repeated(records.where(F.col("partition") == partition), end)
        if cut[topic][partition] < first:
            raise _compacted(environment, topic, partition, first, end)


def _with_gaps(records: DataFrame, topic: str, start: Offsets, cut: Offsets) -> Iterator[int]:
    """The partitions in which offsets are missing below the cut, by compaction or as marks of transactions."""
    below = " OR ".join(f"(partition = {p:d} AND offset < {end:d})" for p, end in cut[topic].items())
    counts = {row[0]: row[1] for row in records.where(below).groupBy("partition").count().collect()}
    lengths = {p: end - start[topic][p] for p, end in cut[topic].items()}
    yield from (p for p, length in lengths.items() if counts.get(p, 0) < length)


def _first_repeated(records: DataFrame, end: int) -> int:
    ranked = records.withColumn("rank", F.row_number().over(Window.partitionBy("key").orderBy("offset")))
    first = ranked.where("rank = 2").agg(F.min("offset")).first()
    return end if first is None or first[0] is None else int(first[0])


def _compacted(environment: Connections, topic: str, partition: int, first: int, end: int) -> OffsetsLost:
    since = None
    if first < end:
        with environment.log.open() as log:
            since = log.oldest(OffsetRange({topic: {partition: first}}, {topic: {partition: first + 1}}))
    when = f", of {since.isoformat(timespec='seconds')}" if since else ""
    return OffsetsLost(
        f"the topic is compacted: its past is whole from offset {first:,}{when}",
        remedy="ask for that moment or a later one. Archive a topic to retain its past: factfold archive",
        place=f"topic {topic}, partition {partition}",
        code="past-compacted",
    )
