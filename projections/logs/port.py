"""The port of what projections read: topics of records, each at its offset in a partition.

Kafka stands behind it on servers (``projections.spark.reading.kafka_source``), an event store on SQLite on the
embedded road (``projections.spark.reading.store_source``). Everything after the raw records is the same code for both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from eventstore.schema_registry import RegisteredSchema
from projections.logs.offsets import OffsetRange, Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from projections.declaring.view_topics import ViewTopics
    from projections.logs.set_aside import SetAside


HEADERS: Final = ("ce_time", "ce_id", "ce_source")
"""What a projection may need of a record's headers: the time of the event, its id, and the service that wrote it."""


def header_text(name: str) -> str:
    """A header as a column of its name, in Spark's SQL; null where a record has none: `get` beyond an array's end."""
    return f"CAST(get(filter(headers, h -> h.key = '{name}'), 0).value AS string) AS {name}"


def record_schema(*, headed: bool) -> str:
    """The columns of a raw record, as every log gives it to Spark; ``headed``, with `HEADERS` of its event as text."""
    headers = "".join(f", {name} string" for name in HEADERS) if headed else ""
    return f"topic string, partition int, offset bigint, key binary, value binary{headers}"


def arrow_record_schema(*, headed: bool) -> pa.Schema:
    """The same in Arrow's form."""
    columns = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("key", pa.binary()),
               ("value", pa.binary()), *((name, pa.string()) for name in HEADERS if headed)]  # fmt: skip
    return pa.schema(columns)


class OpenLog(Protocol):
    """A connection to the log: where topics begin and end, and few records at a time."""

    def beginning_offsets(self, topics: Sequence[str]) -> Offsets:
        """The first retained offset, by topic and partition; TopicMissing."""

    def end_offsets(self, topics: Sequence[str]) -> Offsets:
        """The offset after the last committed record, by topic and partition; TopicMissing."""

    def offsets_at(self, moment: datetime, topics: Sequence[str]) -> Offsets:
        """The offset of the first record that is not older than a moment, or the end, by topic and partition."""

    def deletions_complete_from(self, topics: Sequence[str]) -> Offsets:
        """The first offset from which on every deletion is still there, of topics that are compacted; TopicMissing."""

    def fetch(self, offsets: OffsetRange, *, headed: bool = False) -> pa.Table:
        """The records of a small range, read by this process; columns of ``record_schema``. RecordNotUnpacked."""

    def oldest(self, offsets: OffsetRange) -> datetime | None:
        """When the oldest of the first records of a range was written; None where no record says."""


class SourceBoundaries(Protocol):
    """The ends of one source's transactions in the topics that capture it (``cdc.changes.transactions``)."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics it speaks of."""

    def whole(self, start: Offsets, ends: Offsets, *, most: int) -> Offsets:
        """The greatest ends, at most those given, that split no transaction; about ``most`` records beyond start."""

    def latest(self, start: Offsets) -> Offsets:
        """The greatest ends as of now that split no transaction."""

    def close(self) -> None:
        """Let the connections go."""


class DeadLetters(Protocol):
    """Takes records that were given up."""

    def send(self, aside: SetAside, *, attempts: int) -> None:
        """Keep these records with their causes; returns once they are stored."""


class Uncompacted:
    """What is the same of logs whose topics lose nothing, and are never created again."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Empty ids."""
        return dict.fromkeys(topics, "")

    def deletion_retention(self, topics: Collection[str]) -> Mapping[str, timedelta]:
        """None: nothing is compacted."""
        return {}

    def cleanup_policies(self, topics: Collection[str]) -> Mapping[str, str]:
        """``delete`` without a bound: every record is retained."""
        return dict.fromkeys(topics, "delete")


class RecordLog(Protocol):
    """Topics of committed records. A missing offset fails a read: nothing is skipped."""

    def open(self) -> AbstractContextManager[OpenLog]:
        """Connect, to ask again and again."""

    def schemas(self, avro_changelogs: Collection[str] = ()) -> Mapping[int, RegisteredSchema]:
        """Every registered schema of events, by its id; with those of changelogs whose records are Avro."""

    def cleanup_policies(self, topics: Collection[str]) -> Mapping[str, str]:
        """How each topic is cleaned, in Kafka's words: ``compact`` keeps the last record of a key; TopicMissing."""

    def deletion_retention(self, topics: Collection[str]) -> Mapping[str, timedelta]:
        """For how long, at least, topics that are compacted keep a deletion behind the row it deletes; TopicMissing."""

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """What tells each topic from another of its name, made before or after it; TopicMissing."""

    def transactions(self, prefix: str, topics: Sequence[str]) -> SourceBoundaries:
        """The ends of transactions of the source that these changelog topics capture; InvalidDefinition without."""

    def dead_letters(self, topics: Sequence[str], *, group: str) -> AbstractContextManager[DeadLetters]:
        """Where a group's dead letters of these topics go; InvalidDefinition for a log without such topics."""

    def view_topics(self) -> ViewTopics:
        """Where rows of views are published to; InvalidDefinition for a log without such topics."""

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """The records of a large range that is not empty, read by the executors; columns of ``record_schema``."""
