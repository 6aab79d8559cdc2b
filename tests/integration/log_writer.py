"""Writes what a projection reads, straight into Kafka: events in Avro, changes as Debezium has them."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from eventstore import Aggregate, Settings
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroEncoder
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.schema_registry import RegisteredSchema
from eventstore.topics import SCHEMAS_TOPIC, changelog_topic, event_topic, history_topic, partition_of, schemas_topic

PARTITIONS = 3


class LogWriter:
    """One event topic and a changelog topic a table, with names of their own; ``send`` waits until they are stored.

    The topics of the tables in ``history`` are not compacted.
    """

    def __init__(
        self, settings: Settings, aggregate: type[Aggregate], *tables: sa.Table, history: Collection[str] = ()
    ) -> None:
        unique = uuid.uuid4().hex[:8]
        self.settings = settings
        self.aggregate = aggregate
        self.events_topic = f"{aggregate.category}.{unique}"
        self.changes_topics = {table.name: f"test.{unique}.{table.name}" for table in tables}
        self._versions: dict[str, int] = {}
        self._lsn = 1_000
        self._producer = RecordProducer(settings)
        changelogs = [
            (history_topic if name in history else changelog_topic)(topic, partitions=PARTITIONS)
            for name, topic in self.changes_topics.items()
        ]
        ensure_topics(settings, [event_topic(self.events_topic, partitions=PARTITIONS), schemas_topic(), *changelogs])
        self.publish_schemas(aggregate)

    def publish_schemas(self, aggregate: type[Aggregate]) -> None:
        """Put the schemas of an aggregate's events into the schemas topic."""
        self.send([self.schema(kind.registered) for kind in aggregate.event_types.values()])

    def schema(self, schema: RegisteredSchema) -> OutgoingRecord:
        """The record of the schemas topic that registers a schema."""
        return OutgoingRecord(topic=SCHEMAS_TOPIC, key=str(schema.id).encode(), value=schema.to_json())

    def send(self, records: list[OutgoingRecord]) -> None:
        """Hand records to Kafka and wait until they are stored."""
        self._producer.send(records)

    def event(
        self, identity: str, event: object, *, version: int | None = None, ce_time: str | None = None
    ) -> OutgoingRecord:
        """The record of the next event of a stream, or of the given version; ``ce_time`` is a header of it."""
        record = self._event(identity, event_type_of(event).encode(event), version)
        return record if ce_time is None else dataclasses.replace(record, headers=(("ce_time", ce_time.encode()),))

    def deletion(self, identity: str) -> list[OutgoingRecord]:
        """The records by which a stream is deleted: one an event, and one behind them."""
        last = self._versions[f"{self.aggregate.category}-{identity}"]
        return [self._event(identity, None, version) for version in range(last + 2)]

    def raw_event(self, identity: str, schema: RegisteredSchema, values: Mapping[str, Any]) -> OutgoingRecord:
        """The record of a stream's next event, written by a schema of its own."""
        return self._event(identity, AvroEncoder(schema).encode(values), None)

    def _event(self, identity: str, value: bytes | None, version: int | None) -> OutgoingRecord:
        stream = f"{self.aggregate.category}-{identity}"
        if version is None:
            version = self._versions.get(stream, -1) + 1
            self._versions[stream] = version
        partition = partition_of(stream, PARTITIONS)
        key = f"{stream}@{version}".encode()
        return OutgoingRecord(topic=self.events_topic, key=key, value=value, partition=partition)

    def change(
        self,
        table: str,
        op: str,
        row: Mapping[str, Any],
        *,
        lsn: int | None = None,
        snapshot: bool = False,
        ts_us: int | None = None,
    ) -> OutgoingRecord:
        """The change event of a row keyed by ``id``: op c, u, d or r; a deleted row needs its key only.

        ``ts_us`` is when its transaction was committed, in microseconds since 1970.
        """
        if lsn is None:
            self._lsn += 10
            lsn = self._lsn
        source: dict[str, Any] = {"lsn": lsn, "snapshot": "true" if snapshot else "false"}
        if ts_us is not None:
            source["ts_us"] = ts_us
        value = {"op": op, "before": None, "after": None if op == "d" else dict(row), "source": source}
        return self._changelog(table, row["id"], json.dumps(value).encode())

    def tombstone(self, table: str, key: Any) -> OutgoingRecord:
        """The record that follows a deletion."""
        return self._changelog(table, key, None)

    def _changelog(self, table: str, key: Any, value: bytes | None) -> OutgoingRecord:
        text = json.dumps({"id": key})
        return OutgoingRecord(
            topic=self.changes_topics[table], key=text.encode(), value=value,
            partition=partition_of(text, PARTITIONS),
        )  # fmt: skip
