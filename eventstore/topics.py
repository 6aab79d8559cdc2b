"""Topic kinds, key rule, partition rule, record layout: one definition for every road to Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from eventstore.errors import NotFramedAvro
from eventstore.identifiers import Position, check_topic
from eventstore.messages import Metadata, RecordedEvent
from eventstore.serialization import AvroDecoder

SCHEMAS_TOPIC: Final = "factfold.schemas"
DEFAULT_PARTITIONS: Final = 4

# Column of the store's `events` and `schemas` tables → header of the topic record.
HEADER_COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("id", "ce_id"),
    ("type", "ce_type"),
    ("ce_source", "ce_source"),
    ("stream", "ce_subject"),
    ("ce_time", "ce_time"),
    ("version", "ce_streamversion"),
    ("position", "ce_position"),
    ("correlation_id", "ce_correlationid"),
    ("causation_id", "ce_causationid"),
    ("traceparent", "traceparent"),
)

# Headers that are the same in every record.
HEADER_CONSTANTS: Final[tuple[tuple[str, str], ...]] = (
    ("content-type", "application/avro"),
    ("ce_specversion", "1.0"),
)

_UNLIMITED: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_COMPACT: Final = {"cleanup.policy": "compact", **_UNLIMITED}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it has to be; `replication` None leaves the factor to the broker's default."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int | None = None

    def __post_init__(self) -> None:
        check_topic(self.name)


def event_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe the topic of a category: compacted by a key unique to each event, so nothing is ever lost."""
    return TopicSpec(name, partitions, _COMPACT)


def changelog_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe a topic of row changes: compacted by primary key."""
    return TopicSpec(name, partitions, _COMPACT)


def branch_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe a topic of routed records: never compacted, since its sink may repeat a record."""
    return TopicSpec(name, partitions, {"cleanup.policy": "delete"})


def schemas_topic() -> TopicSpec:
    """Describe the one topic of all schemas: one partition, so a reader sees them in order."""
    return TopicSpec(SCHEMAS_TOPIC, 1, _COMPACT)


def message_key(stream: str, version: int) -> str:
    """Return the key of an event's record: unique for each event, so compaction never removes history."""
    return f"{stream}@{version}"


def partition_of(key: str, partitions: int) -> int:
    """Return the partition Kafka's Java client chooses for this key."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 (32 bits, unsigned) as in org.apache.kafka.common.utils.Utils."""
    mix, mask, length = 0x5BD1E995, 0xFFFFFFFF, len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * mix & mask
        h = (h * mix & mask) ^ ((k ^ (k >> 24)) * mix & mask)
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * mix & mask
    h = (h ^ (h >> 13)) * mix & mask
    return h ^ (h >> 15)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One record of any topic: key and value as bytes, headers in order, timestamp in milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    @property
    def place(self) -> str:
        """The record's address for messages."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


def recorded_event(record: TopicRecord, decoder: AvroDecoder) -> RecordedEvent:
    """Read an event topic's record; NotFramedAvro where it is none.

    `position.order_xid` is 0: the topic's own order takes its place.
    """
    headers = _texts(record.headers)
    if record.value is None:
        raise _not_an_event(record, "it has no value")
    schema_id, data = decoder.decode(record.value)
    try:
        return RecordedEvent(
            id=UUID(headers["ce_id"]),
            stream=headers["ce_subject"],
            version=int(headers["ce_streamversion"]),
            type=headers["ce_type"],
            schema_id=schema_id,
            data=data,
            metadata=_metadata(headers),
            time=datetime.fromisoformat(headers["ce_time"]),
            position=Position(0, int(headers["ce_position"])),
        )
    except (KeyError, ValueError) as error:
        raise _not_an_event(record, f"its headers lack or misstate {error}") from error


def _texts(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name: value.decode() for name, value in headers if value is not None}


def _metadata(headers: Mapping[str, str]) -> Metadata:
    return Metadata(
        correlation_id=headers.get("ce_correlationid"),
        causation_id=headers.get("ce_causationid"),
        traceparent=headers.get("traceparent"),
    )


def _not_an_event(record: TopicRecord, why: str) -> NotFramedAvro:
    return NotFramedAvro(
        f"the record is no event: {why}",
        remedy="check which writer fills this topic; events carry the ce_ headers",
        place=record.place,
    )
