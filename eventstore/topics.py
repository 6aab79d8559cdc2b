"""Topic kinds, key rule, partition rule, record layout: one definition for every road to Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from eventstore.errors import ForeignRecord, InvalidIdentifier, NotFramedAvro
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import MAX_TOPIC_LENGTH, Position, check_source, check_topic
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import Metadata, RecordedEvent

# The CloudEvents source of a store that is given none: one service alone, whose topics need no name in front.
DEFAULT_SOURCE: Final = "/factfold"
SCHEMAS_TOPIC: Final = "factfold.schemas"
DEFAULT_PARTITIONS: Final = 4

# The type of a row without a payload, which is a record without a value: an event of a deleted stream.
DELETED_TYPE: Final = "factfold.deleted"

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

# The prefix of the headers that a dead letter has in addition to its record's: dead_letter_topic, …
DEAD_LETTER_PREFIX: Final = "dead_letter_"
DEAD_LETTER_MESSAGE_LENGTH: Final = 1000
# The value's size in bytes if the record was too large for a dead letter: it stays in its source topic.
DEAD_LETTER_OMITTED: Final = "dead_letter_omitted_bytes"
# The branch that a record of a branch topic was put into.
BRANCH_HEADER: Final = "factfold_branch"

# What stands at the end of the names of topics that a group has for itself: no pattern of another one matches them.
DEAD_LETTERS: Final = "dead-letter"
RETRIES: Final = "retry"
SETTLED: Final = f"{DEAD_LETTERS}.settled"

_NOT_OF_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]+")
# With a category, a branch and a group behind it the name is a topic still.
_LONGEST_SERVICE: Final = 40
_UNLIMITED: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
_COMPACT: Final = {"cleanup.policy": "compact", **_UNLIMITED}
# Kafka's Java producer sends at most 1 MiB by default, key and headers included. A longer event would
# stop the connector that publishes it, and with it every event after it.
MAX_EVENT_BYTES: Final = 1_000_000
# A routed record is longer than its source's by some headers, and is not compressed as its source may have been.
MAX_ROUTED_BYTES: Final = 16 << 20
# A dead letter is longer than its record by the headers that tell of its end.
MAX_DEAD_LETTER_BYTES: Final = MAX_ROUTED_BYTES + (64 << 10)
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
# A reader that was offline for longer may have missed tombstones, and stops: a long weekend needs no rebuild.
TOMBSTONE_RETENTION: Final[Mapping[str, str]] = {"delete.retention.ms": str(_WEEK_MS)}
_ROUTED: Final = {"cleanup.policy": "delete", "max.message.bytes": str(MAX_ROUTED_BYTES)}


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it has to be; `replication` None leaves the factor to the broker's default."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int | None = None

    def __post_init__(self) -> None:
        check_topic(self.name, limit=MAX_TOPIC_LENGTH)


def topic_of_category(category: str, *, source: str = DEFAULT_SOURCE) -> str:
    """Return the topic that a service gives a category: `shop.order` for the source `/shop`, `order` for the default.

    The last part of the source's path names the service. InvalidIdentifier if no topic can have that name.
    """
    if source == DEFAULT_SOURCE:
        return category
    service = _NOT_OF_TOPICS.sub("-", check_source(source).rstrip("/").rpartition("/")[2]).strip("-.")
    if not service or len(service) > _LONGEST_SERVICE:
        raise InvalidIdentifier(
            f"source {source[:80]!r} gives no name for the topic of category {category!r}",
            remedy="end the source in a short name (/shop), or give the topic: topic_prefix=, topic=",
        )
    return check_topic(f"{service}.{category}")


def event_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe the topic of a category: compacted by a key unique to each event, so nothing is ever lost.

    Tombstones of a deleted stream stay for at least a week: a reader that is offline for less misses none.
    """
    return TopicSpec(name, partitions, {**_COMPACT, **TOMBSTONE_RETENTION})


def changelog_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe a topic of row changes: compacted by primary key, with tombstones for at least a week.

    Examples:
        >>> changelog_topic("shop.public.customers", partitions=4).partitions
        4
    """
    return TopicSpec(name, partitions, {**_COMPACT, **TOMBSTONE_RETENTION})


def view_topic(name: str, *, partitions: int, compaction_lag_ms: int) -> TopicSpec:
    """Describe a topic of a view's rows: compacted by the view's key, but nothing younger than the lag.

    A rebuild may read the topic for as long as the lag and misses nothing. A reader that is offline for as long again,
    or for a week, still finds the tombstones.
    """
    retention_ms = max(compaction_lag_ms, _WEEK_MS)
    lags = {"min.compaction.lag.ms": str(compaction_lag_ms), "delete.retention.ms": str(retention_ms)}
    return TopicSpec(name, partitions, {**_COMPACT, **lags, "max.message.bytes": str(MAX_ROUTED_BYTES)})


def final_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe a topic of final results: each is in it once, and nothing is ever removed."""
    longest = {"max.message.bytes": str(MAX_ROUTED_BYTES)}
    return TopicSpec(name, partitions, {"cleanup.policy": "delete", **_UNLIMITED, **longest})


def history_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe a topic of row changes that retains every change, for readers that need earlier rows."""
    return TopicSpec(name, partitions, {"cleanup.policy": "delete", **_UNLIMITED})


def branch_topic(name: str, *, partitions: int) -> TopicSpec:
    """Describe a topic of routed records: never compacted, since its sink may repeat a record."""
    return TopicSpec(name, partitions, _ROUTED)


def dead_letter_topic(name: str, *, partitions: int = 1) -> TopicSpec:
    """Describe a topic of dead letters: retained until an operator has handled them."""
    return TopicSpec(name, partitions, {**_ROUTED, "max.message.bytes": str(MAX_DEAD_LETTER_BYTES), **_UNLIMITED})


def dead_letter_topic_of(topic: str, group: str | None = None) -> str:
    """Return the name of the topic of records of a topic that a group gave up, or without one its branches."""
    return ".".join(filter(None, (topic, group, DEAD_LETTERS)))


def retry_topic_of(topic: str, group: str) -> str:
    """Return the name of the topic of records of a topic that a group handles again."""
    return f"{topic}.{group}.{RETRIES}"


def settled_topic(letters: str) -> TopicSpec:
    """Describe the topic of the actions on letters of a dead-letter topic: retained as long as these."""
    return TopicSpec(f"{letters.removesuffix(DEAD_LETTERS)}{SETTLED}", 1, {"cleanup.policy": "delete", **_UNLIMITED})


def is_of_a_group(topic: str) -> bool:
    """Say whether a topic is named as a group's dead letters, their actions or retries, or as one of Kafka's own."""
    return topic.startswith("__") or topic.endswith((f".{DEAD_LETTERS}", f".{SETTLED}", f".{RETRIES}"))


def schemas_topic() -> TopicSpec:
    """Describe the one topic of all schemas: one partition, so a reader sees them in order."""
    return TopicSpec(SCHEMAS_TOPIC, 1, _COMPACT)


def message_key(stream: str, version: int) -> str:
    """Return the key of an event's record, unique for each event: compaction never removes history.

    Examples:
        >>> message_key("order-o1", 3)
        'order-o1@3'
    """
    return f"{stream}@{version}"


def partition_of(key: str, partitions: int) -> int:
    """Return the partition that Kafka's Java client chooses for a key.

    Examples:
        >>> partition_of("order-o1", 4)
        2
    """
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


def by_partition(offsets: Mapping[str, Mapping[int, int]]) -> dict[tuple[str, int], int]:
    """Return offsets by topic and partition."""
    return {(topic, partition): offset for topic, parts in offsets.items() for partition, offset in parts.items()}


def by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    """Return offsets of partitions by topic, as a reader takes them."""
    nested: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[partition] = offset
    return nested


def recorded_event(record: TopicRecord, decoder: AvroDecoder) -> RecordedEvent:
    """Read an event topic's record; NotFramedAvro where it is none.

    `position.order_xid` is 0: the topic's own order takes its place.
    """
    if record.value is None:
        raise not_an_event("it has no value", record.place)
    schema, data = decoder.decode(record.value)
    return event_of(record.headers, schema=schema, data=data, place=record.place)


def event_of(
    headers: Iterable[tuple[str, bytes | None]], *, schema: RegisteredSchema, data: Mapping[str, Any], place: str
) -> RecordedEvent:
    """Put a decoded value and its headers together; NotFramedAvro where the headers are not those of an event."""
    try:
        texts = _texts(headers)
        return RecordedEvent(
            id=UUID(texts["ce_id"]),
            stream=texts["ce_subject"],
            version=int(texts["ce_streamversion"]),
            type=texts["ce_type"],
            schema_id=schema.id,
            schema_version=schema.version,
            data=data,
            metadata=_metadata(texts),
            time=_zoned(texts["ce_time"]),
            position=Position(0, int(texts["ce_position"])),
        )
    except (KeyError, ValueError, OverflowError, InvalidIdentifier) as error:
        raise not_an_event(f"its headers lack or misstate {error}", place) from error


def _zoned(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"'ce_time': {text!r} has no zone")
    time.astimezone(UTC)  # which the first and the last day of the calendar may not have
    return time


def require_source(headers: Iterable[tuple[str, bytes | None]], source: str, *, place: str) -> None:
    """Raise ForeignRecord unless the record's headers name a source."""
    value = next((value for name, value in headers if name == "ce_source"), None)
    actual = "none" if value is None else repr(value.decode(errors="replace"))
    if actual != repr(source):
        raise ForeignRecord(
            f"the record is of another service: {source!r} is declared, and the record's source is {actual}",
            remedy="read a topic that the service alone fills, or leave out source= to take every source's events",
            place=place,
        )


def _texts(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name: value.decode() for name, value in headers if value is not None}


def _metadata(headers: Mapping[str, str]) -> Metadata:
    return Metadata(
        correlation_id=headers.get("ce_correlationid"),
        causation_id=headers.get("ce_causationid"),
        traceparent=headers.get("traceparent"),
    )


def not_an_event(why: str, place: str) -> NotFramedAvro:
    """Build the error for a record without an event."""
    return NotFramedAvro(
        f"the record is no event: {why}",
        remedy="check which writer fills this topic. Events carry the ce_ headers",
        place=place,
    )


def dead_letter_headers(
    origin: tuple[str, int, int],
    *,
    group: str,
    error: Exception,
    attempts: int,
    time: datetime,
    message: str | None = None,
) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that a dead letter has in addition to its record's. `origin` is topic, partition and offset.

    `message` replaces the error's own text, which may hold values that must not be stored.
    """
    topic, partition, offset = origin
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "group": group,
        "error": type(error).__name__,
        "message": (str(error) if message is None else message)[:DEAD_LETTER_MESSAGE_LENGTH],
        "attempts": attempts,
        "time": time.isoformat(),
    }
    return tuple((f"{DEAD_LETTER_PREFIX}{name}", str(value).encode()) for name, value in fields.items())
