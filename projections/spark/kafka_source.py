"""Bounded reads of Kafka topics: committed records between two sets of offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets = Mapping[str, Mapping[int, int]]

# On a quiet or transactional topic the default wait of 500 ms is paid at the end of every partition.
LIVE = {"kafka.fetch.max.wait.ms": "10"}
# A scan of a whole topic: larger polls and fetches read 1.5 to 2 times what the defaults do.
BULK = {
    **LIVE,
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


@dataclass(frozen=True)
class OffsetRange:
    """The records to read: from ``start`` inclusive to ``end`` exclusive, by topic and partition."""

    start: Offsets
    end: Offsets

    @property
    def records(self) -> int:
        """How many offsets it spans; transaction markers count too, so there are at most this many records."""
        return sum(o - self.start[t][p] for t, ends in self.end.items() for p, o in ends.items())

    def changed_topics(self) -> list[str]:
        """The topics with anything to read."""
        return [t for t, ends in self.end.items() if any(o > self.start[t][p] for p, o in ends.items())]

    def only(self, topic: str) -> OffsetRange:
        """The range of one topic."""
        return OffsetRange({topic: self.start[topic]}, {topic: self.end[topic]})

    def not_empty(self) -> OffsetRange:
        """The range without the partitions that have nothing to read."""
        moved = {t: {p: o for p, o in ends.items() if o > self.start[t][p]} for t, ends in self.end.items()}
        moved = {t: ends for t, ends in moved.items() if ends}
        return OffsetRange({t: {p: self.start[t][p] for p in ends} for t, ends in moved.items()}, moved)


def read_range(
    spark: SparkSession, client: Mapping[str, str], offsets: OffsetRange, *, options: Mapping[str, str]
) -> DataFrame:
    """The committed records of a range, with topic, partition, offset, key and value.

    ``client`` is the JVM spelling of the Kafka settings. An offset that is gone fails the read: nothing is skipped.
    """
    wanted = offsets.not_empty()
    reader = spark.read.format("kafka").option("assign", json.dumps({t: sorted(p) for t, p in wanted.end.items()}))
    for name, value in client.items():
        reader = reader.option(f"kafka.{name}", value)
    for name, value in {"kafka.isolation.level": "read_committed", "failOnDataLoss": "true", **options}.items():
        reader = reader.option(name, value)
    reader = reader.option("startingOffsets", _json(wanted.start)).option("endingOffsets", _json(wanted.end))
    return reader.load().select("topic", "partition", "offset", "key", "value")


def _json(offsets: Offsets) -> str:
    return json.dumps({t: {str(p): o for p, o in parts.items()} for t, parts in offsets.items()})
