"""Kafka as the log of projections: bounded reads of topics, committed records between two sets of offsets."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc.changes.transactions import SourceTransactions
from eventstore.errors import OffsetsExpired, RecordsUnreadable, TopicMissing
from eventstore.kafka.admin import OffsetReader, cleanup_policies, tombstone_lives, topic_ids
from eventstore.kafka.consumer import RangeReader, add_schemas, end_of_batch, read_schemas
from eventstore.schema_registry import RegisteredSchema
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from projections.errors import RecordNotUnpacked, not_unpacked, offsets_lost
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import HEADERS, arrow_record_schema, header_text
from projections.outputs.kafka import KafkaDeadLetters, KafkaViewTopics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

# A scan of a whole topic: larger polls and fetches read 1.5 to 2 times what the defaults do, and on a transactional
# topic the default wait of 500 ms would be paid at the end of every partition.
_BULK = {
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}

_RAW = ("topic", "partition", "offset", "key", "value")

_HEADERS = [header_text(name) for name in HEADERS]


@dataclass(frozen=True)
class KafkaLog:
    """The topics of one cluster; its records are decoded by the schemas topic."""

    settings: Settings

    def open(self) -> OpenKafkaLog:
        """Connect; the first question reaches the brokers."""
        return OpenKafkaLog(self.settings)

    def schemas(self, avro_changelogs: Collection[str] = ()) -> Mapping[int, RegisteredSchema]:
        """Every committed schema by its id, none where no service has published one; BrokerUnreachable.

        Of ``avro_changelogs``, whose schemas no topic has, those in the registry of the settings too: RegistryMissing,
        RegistryUnreachable, SchemaError.
        """
        try:
            registry = read_schemas(self.settings)
        except TopicMissing:
            registry = {}  # a group may follow captured tables alone; an event's id would be an unknown one
        if not avro_changelogs:
            return registry
        from eventstore.kafka.confluent_registry import registered_for  # whose packages few need

        return add_schemas(registry, registered_for(self.settings, avro_changelogs))

    def cleanup_policies(self, topics: Collection[str]) -> Mapping[str, str]:
        """The topics' cleanup.policy; TopicMissing, BrokerUnreachable."""
        return cleanup_policies(self.settings, topics)

    def deletion_retention(self, topics: Collection[str]) -> Mapping[str, timedelta]:
        """By their settings; TopicMissing, BrokerUnreachable."""
        return {topic: life.retention for topic, life in tombstone_lives(self.settings, topics).items()}

    def transactions(self, prefix: str, topics: Sequence[str]) -> SourceTransactions:
        """The ends of a connector's transactions; the first question reaches the brokers."""
        return SourceTransactions(self.settings, prefix, topics)

    def dead_letters(self, topics: Sequence[str], *, group: str) -> KafkaDeadLetters:
        """The group's dead-letter topics, made where they are missing; BrokerUnreachable."""
        return KafkaDeadLetters(self.settings, topics, group=group)

    def view_topics(self) -> KafkaViewTopics:
        """The cluster's; the first question reaches the brokers."""
        return KafkaViewTopics(self.settings)

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """The committed records of a range, partitions side by side."""
        reader = _reader(spark, self.settings.kafka.jvm(), offsets)
        if not headed:
            return reader.load().select(*_RAW)
        return reader.option("includeHeaders", "true").load().selectExpr(*_RAW, *_HEADERS)

    def scan_whole(self, spark: SparkSession, offsets: OffsetRange) -> DataFrame:
        """The same with all that a record has: ``headers``, ``ce_time`` of them, and the broker's ``timestamp``."""
        reader = _reader(spark, self.settings.kafka.jvm(), offsets).option("includeHeaders", "true")
        return reader.load().selectExpr(*_RAW, "headers", header_text("ce_time"), "timestamp")

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """What distinguishes a topic from an earlier or later one of its name; TopicMissing, BrokerUnreachable."""
        return topic_ids(self.settings, topics)


class OpenKafkaLog(OffsetReader):
    """Offsets, and small ranges by a consumer that stays connected: planning a Spark job takes many times as long."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._reader = RangeReader(settings)

    def deletions_complete_from(self, topics: Sequence[str]) -> Offsets:
        """By the records' timestamps; TopicMissing, BrokerUnreachable."""
        now = datetime.now(UTC)
        lives = tombstone_lives(self._settings, topics)
        offsets = dict[str, Mapping[int, int]]()
        for life in set(lives.values()):  # topics of one kind are alike: one question for all of them
            alike = [topic for topic in lives if lives[topic] == life]
            offsets |= self.offsets_at(now - (life.lag + life.retention), alike)
        return offsets

    def fetch(self, offsets: OffsetRange, *, headed: bool = False) -> pa.Table:
        """The committed records of a range; OffsetsLost, RecordNotUnpacked, BrokerUnreachable."""
        records = self._records(offsets)
        columns: dict[str, list[Any]] = {
            name: [getattr(record, name) for record in records]
            for name in ("topic", "partition", "offset", "key", "value")
        }
        if headed:
            columns |= {name: [_text(record, name) for record in records] for name in HEADERS}
        return pa.table(columns, schema=arrow_record_schema(headed=headed))

    def oldest(self, offsets: OffsetRange) -> datetime | None:
        """By the records' timestamps; the marker of a transaction has none, nor has what cannot be unpacked."""
        try:
            times = [record.timestamp for record in self._records(offsets.first_of_each())]
        except RecordNotUnpacked:
            return None
        return datetime.fromtimestamp(min(times) / 1000, UTC) if times else None

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        super().close()

    def _records(self, offsets: OffsetRange) -> list[TopicRecord]:
        nonempty = offsets.not_empty()
        try:
            self._reader.seek(nonempty.start)
            return list(self._reader.read_up_to(nonempty.end))
        except OffsetsExpired as error:
            # The same may be waiting to be said of other partitions, and would be said of what is read next.
            self._reader.close()
            self._reader = RangeReader(self._settings)
            raise offsets_lost(error.place) from error
        except RecordsUnreadable as error:
            self._reader.close()
            self._reader = RangeReader(self._settings)
            end = end_of_batch(self._settings, error.topic, error.partition, first=error.offset)
            raise not_unpacked(
                error.message, topic=error.topic, partition=error.partition, offset=error.offset, end=end
            ) from error


def _text(record: TopicRecord, header: str) -> str | None:
    content = next((value for name, value in record.headers if name == header), None)
    return None if content is None else content.decode(errors="replace")


def _reader(spark: SparkSession, client: Mapping[str, str], offsets: OffsetRange) -> DataFrameReader:
    nonempty = offsets.not_empty()
    reader = spark.read.format("kafka").option("assign", json.dumps({t: sorted(p) for t, p in nonempty.end.items()}))
    for name, value in client.items():
        reader = reader.option(f"kafka.{name}", value)
    for name, value in {"kafka.isolation.level": "read_committed", "failOnDataLoss": "true", **_BULK}.items():
        reader = reader.option(name, value)
    return reader.option("startingOffsets", _json(nonempty.start)).option("endingOffsets", _json(nonempty.end))


def _json(offsets: Offsets) -> str:
    return json.dumps({t: {str(p): o for p, o in parts.items()} for t, parts in offsets.items()})
