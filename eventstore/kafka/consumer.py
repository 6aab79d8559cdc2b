"""Reading a range of a topic: from given offsets up to given ends, committed records only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from eventstore.errors import BrokerUnreachable
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, typed_errors
from eventstore.settings import Settings
from eventstore.topics import TopicRecord

# Kafka gives the first fetch of a quiet topic back after this long; 500 is librdkafka's default and is felt.
_FETCH_WAIT_MS: Final = 10
_BATCH: Final = 1000


class RangeReader:
    """Reads partitions assigned by hand, without a group; offsets are the caller's affair.

    `reached` gives the next offset of each partition, the markers of transactions included.
    """

    def __init__(self, settings: Settings) -> None:
        self._servers = settings.kafka.bootstrap_servers
        self._consumer = Consumer(_consumer_settings(settings))
        self.reached: dict[int, int] = {}

    def seek(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Read these partitions of one topic from these offsets on."""
        self.reached = dict(offsets)
        with typed_errors(self._servers, topic=topic):
            self._consumer.assign([TopicPartition(topic, p, offset) for p, offset in offsets.items()])

    def poll(self, timeout: float) -> list[TopicRecord]:
        """Return what has arrived, at most 1,000 records, once there is one; nothing after `timeout` s."""
        with typed_errors(self._servers):
            # `consume` alone would wait the whole time for a full batch.
            first = self._consumer.poll(timeout)
            messages = [] if first is None else [first, *self._consumer.consume(_BATCH - 1, 0)]
        return [self._record(message) for message in messages if not self._at_end(message)]

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _at_end(self, message: Message) -> bool:
        problem = message.error()
        if problem is None:
            return False
        if problem.name() != "_PARTITION_EOF":
            with typed_errors(self._servers, topic=message.topic()):
                raise KafkaException(problem)
        # Behind the last committed record only markers of transactions are left: they carry no message.
        self.reached[message.partition() or 0] = message.offset() or 0
        return True

    def _record(self, message: Message) -> TopicRecord:
        record = _record(message)
        self.reached[record.partition] = record.offset + 1
        return record


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
        yield from _until(reader, topic, first, ends, deadline)


def _until(
    reader: RangeReader, topic: str, first: Mapping[int, int], ends: Mapping[int, int], deadline: float
) -> Iterator[TopicRecord]:
    reader.seek(topic, first)
    before, quiet_since = dict(first), time.monotonic()
    while any(reader.reached[partition] < offset for partition, offset in ends.items()):
        records = reader.poll(0.2)
        yield from (record for record in records if record.offset < ends[record.partition])
        if reader.reached != before:
            before, quiet_since = dict(reader.reached), time.monotonic()
        if time.monotonic() - quiet_since > deadline:
            raise _stalled(topic, reader.reached, deadline)


def _stalled(topic: str, reached: Mapping[int, int], deadline: float) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"topic {topic!r} gave nothing for {deadline:g} s before its end",
        remedy="check the broker's log and the network, then read again",
        place=f"{topic} {dict(reached)}",
    )


def _record(message: Message) -> TopicRecord:
    return TopicRecord(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((str(header[0]), _bytes(header[1])) for header in message.headers() or ()),
        timestamp=message.timestamp()[1],
    )


def _bytes(value: Any) -> bytes | None:
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
