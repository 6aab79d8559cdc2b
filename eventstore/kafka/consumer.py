"""Reading a range of a topic: from given offsets up to given ends, committed records only.

The schemas topic: what every reader needs to decode every service's events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from eventstore.closing import Closing
from eventstore.delivery.calls import HandlerThread
from eventstore.errors import BrokerUnreachable, OffsetsExpired, RecordsUnreadable
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, typed_errors
from eventstore.schema_registry import RegisteredSchema, check_same, unknown_schema
from eventstore.settings import Settings
from eventstore.topics import SCHEMAS_TOPIC, TopicRecord

# What grows beyond the limit, is damaged, or was compressed in a way that this client does not know.
_UNREADABLE: Final = frozenset({"_BAD_COMPRESSION", "_BAD_MSG", "_NOT_IMPLEMENTED", "MSG_SIZE_TOO_LARGE"})
log = structlog.get_logger()
# What closes a client is a request, which is answered sooner or not at all.
_CLOSING_SECONDS: Final = 30.0
# Kafka gives the first fetch of a quiet topic back after this long; 500 is librdkafka's default and is felt.
_FETCH_WAIT_MS: Final = 10
_BATCH: Final = 1000
OUT_OF_RANGE: Final = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})
# The next poll brings us back into the group, or the client into touch with its brokers.
PASSING: Final = frozenset({"_MAX_POLL_EXCEEDED", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT"})


def is_unreadable(message: Message) -> bool:
    """Say whether a message is the client's error about a batch at a place."""
    problem, offset = message.error(), message.offset()
    return problem is not None and problem.name() in _UNREADABLE and offset is not None and offset >= 0


def unreadable(message: Message) -> RecordsUnreadable:
    """Build the error for a batch that begins with this offset."""
    problem, topic, partition = message.error(), message.topic() or "", message.partition() or 0
    offset = message.offset() or 0
    why = "" if problem is None else problem.str()
    return RecordsUnreadable(
        f"the records of {topic!r} from offset {offset} of partition {partition} on cannot be unpacked: {why}",
        remedy="raise receive.message.max.bytes in the Kafka settings' extra_librdkafka if they are meant to be so "
        "large. Otherwise pass over them, as a subscription does by unreadable='dead-letter'",
        topic=topic,
        partition=partition,
        offset=offset,
    )


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Takes the place of the messages of a batch that cannot be unpacked. `end` is the offset after it.

    A producer compresses records by the batch, and a few kilobytes may grow to hundreds of megabytes. librdkafka gives
    zstd up above `receive.message.max.bytes`. It says this for the batch's first offset, and stays there.
    """

    of: str
    number: int
    first: int
    end: int

    def topic(self) -> str:
        """Return the topic."""
        return self.of

    def partition(self) -> int:
        """Return the partition."""
        return self.number

    def offset(self) -> int:
        """Return the last offset, behind which the group goes on."""
        return self.end - 1

    def key(self) -> None:
        """Return nothing: it is packed."""

    def value(self) -> None:
        """Return nothing: it is packed."""

    def headers(self) -> None:
        """Return nothing: they are packed."""


class RangeReader(Closing):
    """Reads partitions assigned by hand, without a group; offsets are the caller's affair.

    `reached` gives the next offset by topic and partition, the markers of transactions included.
    """

    def __init__(self, settings: Settings) -> None:
        self._servers = settings.kafka.bootstrap_servers
        self._consumer = Consumer(_consumer_settings(settings))
        self._unreadable: list[RecordsUnreadable] = []
        self.reached: dict[str, dict[int, int]] = {}

    def seek(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Read these partitions, and no others, from these offsets on."""
        self.reached = {topic: dict(parts) for topic, parts in offsets.items()}
        self._unreadable.clear()
        with typed_errors(self._servers, topic=", ".join(offsets)):
            self._consumer.assign([TopicPartition(t, p, o) for t, parts in offsets.items() for p, o in parts.items()])

    def read_up_to(
        self, ends: Mapping[str, Mapping[int, int]], *, deadline: float = DEADLINE_SECONDS
    ) -> Iterator[TopicRecord]:
        """Yield the committed records before the given ends.

        BrokerUnreachable where nothing arrives for `deadline` seconds before they are reached; RecordsUnreadable where
        some before them cannot be unpacked.
        """
        before, quiet_since = 0, time.monotonic()
        while any(self.reached[t][p] < end for t, parts in ends.items() for p, end in parts.items()):
            yield from (r for r in self._poll_before(ends) if r.offset < ends[r.topic][r.partition])
            if (now := sum(o for parts in self.reached.values() for o in parts.values())) != before:
                before, quiet_since = now, time.monotonic()
            if time.monotonic() - quiet_since > deadline:
                raise stalled(self.reached, deadline)

    def _poll_before(self, ends: Mapping[str, Mapping[int, int]]) -> list[TopicRecord]:
        try:
            return self.poll(0.2)
        except RecordsUnreadable as error:
            if error.offset < ends[error.topic][error.partition]:
                raise
            # Fetched with what is before the end, and not asked for.
            self.reached[error.topic][error.partition] = error.offset
            return []

    def poll(self, timeout: float) -> list[TopicRecord]:
        """Return what has arrived, at most 1,000 records, once there is one; nothing after `timeout` s.

        RecordsUnreadable, after the records that were read before it.
        """
        if self._unreadable:
            raise self._unreadable.pop(0)
        records = self._arrived(timeout)
        if self._unreadable and not records:
            raise self._unreadable.pop(0)
        return records

    def _arrived(self, timeout: float) -> list[TopicRecord]:
        with typed_errors(self._servers):
            # `consume` alone would wait the whole time for a full batch.
            first = self._consumer.poll(timeout)
            messages = [] if first is None else [first, *self._consumer.consume(_BATCH - 1, 0)]
        return [self._record(message) for message in messages if self._is_record(message)]

    def close(self) -> None:
        """Leave the broker."""
        close_consumer(
            self._consumer,
            unless="a reader's client did not close, and is left to itself",
            topics=sorted(self.reached),
        )

    def _is_record(self, message: Message) -> bool:
        problem = message.error()
        if problem is None:
            return True
        if problem.name() == "_PARTITION_EOF":
            # Behind the last committed record only markers of transactions are left: they carry no message.
            self.reached[message.topic() or ""][message.partition() or 0] = message.offset() or 0
        elif problem.name() in OUT_OF_RANGE:
            raise OffsetsExpired(
                f"topic {message.topic()!r} no longer holds the records that were to be read",
                remedy="restore them if they matter, or read from where the topic begins now",
                place=f"{message.topic()}[{message.partition()}]",
            )
        elif is_unreadable(message):
            self._unreadable.append(unreadable(message))
        elif problem.name() not in PASSING:
            with typed_errors(self._servers, topic=message.topic()):
                raise KafkaException(problem)
        return False

    def _record(self, message: Message) -> TopicRecord:
        record = _record(message)
        self.reached[record.topic][record.partition] = record.offset + 1
        return record


def close_consumer(consumer: Consumer, *, unless: str, **places: object) -> None:
    """Close a client; one that waits for an answer of its own, and would for good, is left to itself.

    librdkafka does so, rarely: amid a rebalance (its issue 4884), and where offsets were out of range. ``unless`` is
    what the log says then, with the places.
    """
    try:
        close_within(_CLOSING_SECONDS, consumer.close)
    except TimeoutError:
        log.warning(unless, **places)


def close_within(seconds: float, close: Callable[[], object]) -> None:
    """Close a client in a thread of its own, which is left to itself after so long; TimeoutError, KafkaException."""
    thread = HandlerThread("closing a Kafka client")
    closed = thread.start(close)
    thread.close()
    closed.result(seconds)


def read_range(
    settings: Settings,
    topic: str,
    *,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    deadline: float = DEADLINE_SECONDS,
) -> Iterator[TopicRecord]:
    """Yield the committed records of a topic from `start` (the beginning) up to `end` (the end as of now).

    TopicMissing; BrokerUnreachable where nothing arrives for `deadline` seconds before the end.
    """
    with OffsetReader(settings) as offsets:
        first = start or offsets.beginning_offsets([topic])[topic]
        ends = end or offsets.end_offsets([topic])[topic]
    with RangeReader(settings) as reader:
        reader.seek({topic: first})
        yield from reader.read_up_to({topic: ends}, deadline=deadline)


def end_of_batch(settings: Settings, topic: str, partition: int, *, first: int) -> int:
    """Return the offset after a batch that cannot be unpacked and begins with `first`.

    Only the client knows where batches end, and it says no more than that it could not unpack one: offsets are tried,
    in steps twice as long each, then by halves. BrokerUnreachable.
    """
    with OffsetReader(settings) as offsets:
        # Behind it transactions are open: nothing is read there, and a batch is in one of them or in none.
        end = offsets.end_offsets([topic])[topic][partition]
    with RangeReader(settings) as reader:

        def is_within(offset: int) -> bool:
            return _batch_at(reader, topic, partition, offset) == first

        last, step = first, 1
        while last + step < end and is_within(last + step):
            last, step = last + step, step * 2
        after = min(last + step, end)
        while after - last > 1:
            middle = (last + after) // 2
            last, after = (middle, after) if is_within(middle) else (last, middle)
    return after


def _batch_at(reader: RangeReader, topic: str, partition: int, offset: int) -> int | None:
    """The first offset of the batch at an offset, if it is one that cannot be unpacked."""
    reader.seek({topic: {partition: offset}})
    until = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        try:
            if reader.poll(0.2) or reader.reached[topic][partition] > offset:
                return None
        except RecordsUnreadable as error:
            return error.offset
    raise stalled(reader.reached, DEADLINE_SECONDS)


def stalled(reached: Mapping[str, Mapping[int, int]], deadline: float) -> BrokerUnreachable:
    """Return the error of a read that got nothing for so long; ``reached`` is how far it came."""
    return BrokerUnreachable(
        f"topic {', '.join(map(repr, reached))} gave nothing for {deadline:g} s before its end",
        remedy="check the broker's log and the network, then read again",
        place=str({topic: dict(parts) for topic, parts in reached.items()}),
    )


def _record(message: Message) -> TopicRecord:
    return TopicRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=as_bytes(message.key()),
        value=as_bytes(message.value()),
        headers=tuple((str(header[0]), as_bytes(header[1])) for header in message.headers() or ()),
        timestamp=message.timestamp()[1],
    )


def as_bytes(value: Any) -> bytes | None:
    """Return a key, value or header as bytes: the client's types allow for what a producer may put in."""
    return value.encode() if isinstance(value, str) else value


def _consumer_settings(settings: Settings) -> dict[str, Any]:
    return {
        **settings.kafka.librdkafka(),
        "log_level": 0,
        # librdkafka insists on a group even for partitions assigned by hand; nothing is committed to it.
        "group.id": "factfold-range-reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
    }


def read_schemas(settings: Settings, *, topic: str = SCHEMAS_TOPIC) -> dict[int, RegisteredSchema]:
    """Return every committed schema by its id; TopicMissing before the first `apply_connector`, BrokerUnreachable.

    SchemaError where two registries, or one that has forgotten, gave one id to two schemas.
    """
    schemas: dict[int, RegisteredSchema] = {}
    for record in read_range(settings, topic):
        if record.value is not None:
            _add(schemas, RegisteredSchema.from_json(record.value))
    return schemas


class TopicSchemas:
    """The schemas topic as a registry to read: what is not known yet is looked for once more, at the topic's end.

    Looking costs one round trip where nothing is new, so even a topic full of unknown ids is read on.
    """

    def __init__(self, settings: Settings, *, topic: str = SCHEMAS_TOPIC) -> None:
        self._settings = settings
        self._topic = topic
        self._offsets = OffsetReader(settings)
        self._read_to = 0
        self._schemas: dict[int, RegisteredSchema] = {}
        self._types: set[str] = set()
        self.refresh()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema; UnknownSchema where the topic does not hold it either."""
        if schema_id not in self._schemas:
            self.refresh()
        if schema_id not in self._schemas:
            raise unknown_schema(schema_id, f"topic {self._topic}")
        return self._schemas[schema_id]

    def knows_type(self, name: str) -> bool:
        """Say whether any schema belongs to an event type of this name."""
        if name not in self._types:
            self.refresh()
        return name in self._types

    def refresh(self) -> None:
        """Read what was added; TopicMissing, BrokerUnreachable, SchemaError."""
        end = self._offsets.end_offsets([self._topic])[self._topic][0]
        if end <= self._read_to:
            return
        start = {0: self._read_to} if self._read_to else None
        for record in read_range(self._settings, self._topic, start=start, end={0: end}):
            if record.value is not None:
                schema = RegisteredSchema.from_json(record.value)
                _add(self._schemas, schema)
                self._types.add(schema.name)
        self._read_to = end

    def close(self) -> None:
        """Let the connection go."""
        self._offsets.close()


def add_schemas(
    schemas: Mapping[int, RegisteredSchema], others: Iterable[RegisteredSchema]
) -> dict[int, RegisteredSchema]:
    """Return the schemas of two sources by their ids; SchemaError where both gave one id."""
    together = dict(schemas)
    for schema in others:
        _add(together, schema)
    return together


def _add(schemas: dict[int, RegisteredSchema], schema: RegisteredSchema) -> None:
    """Add a schema. With the newest of two under one id, a reader would misread the events of the other."""
    stored = schemas.setdefault(schema.id, schema)
    if stored is not schema:
        check_same(stored, schema)
