"""What projections write to Kafka: topics of views, by one producer a group, and records given up.

These go untouched to the dead-letter topics of their group, with what was wrong with them in headers. The layout is
that of a subscription's dead letters. A batch that is repeated sends its dead letters again: source topic, partition
and offset, in the headers, tell which are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from eventstore.closing import Closing
from eventstore.deadletters.records import own_headers
from eventstore.errors import RecordsUnreadable
from eventstore.kafka.admin import OffsetReader, end_offsets, ensure_topics, require_unlimited
from eventstore.kafka.consumer import RangeReader, end_of_batch, read_range
from eventstore.kafka.producer import OutgoingRecord, Publisher, RecordProducer
from eventstore.settings import Settings
from eventstore.topics import TopicRecord, TopicSpec, dead_letter_headers, dead_letter_topic, dead_letter_topic_of
from projections.declaring.view_topics import Row
from projections.faults import NOT_UNPACKED, Fault

if TYPE_CHECKING:
    from projections.logs.set_aside import SetAside


@dataclass(frozen=True)
class KafkaViewTopics:
    """A `projections.declaring.view_topics.ViewTopics`."""

    settings: Settings

    def ensure(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Make those that are missing and return their names; TopicMismatch, BrokerUnreachable, BrokerRefused."""
        made = ensure_topics(self.settings, topics)
        uncompacted = [topic.name for topic in topics if topic.config["cleanup.policy"] == "delete"]
        require_unlimited(self.settings, uncompacted)
        return made

    def holding(self, topics: Sequence[str]) -> list[str]:
        """Those that hold, or held, any record."""
        ends = end_offsets(self.settings, topics) if topics else {}
        return [topic for topic, parts in ends.items() if any(parts.values())]

    @contextmanager
    def producer(self, group: str) -> Iterator[KafkaRowProducer]:
        """The one producer of a group; ProducerFenced once another one is opened."""
        with Publisher(self.settings, f"factfold.views.{group}") as publisher, OffsetReader(self.settings) as offsets:
            yield KafkaRowProducer(publisher, offsets, self.settings)


@dataclass(frozen=True)
class KafkaRowProducer:
    """Sends rows, a transaction at a time; keys are placed as Kafka's Java client places them."""

    publisher: Publisher
    offsets: OffsetReader
    settings: Settings

    def send(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """All of them, or none; ProducerFenced, BrokerUnreachable, BrokerRefused."""
        self.publisher.send_rows(rows)
        self.publisher.commit()

    def ends(self, topic: str) -> Mapping[int, int]:
        """Behind the last committed record of each partition; TopicMissing, BrokerUnreachable."""
        return self.offsets.end_offsets([topic])[topic]

    def keys_between(self, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> set[str]:
        """The keys of committed records; TopicMissing, BrokerUnreachable, RecordsUnreadable."""
        if all(start.get(partition, 0) >= offset for partition, offset in end.items()):
            return set()
        beginning = self.offsets.beginning_offsets([topic])[topic]
        first = {partition: max(start.get(partition, 0), beginning[partition]) for partition in end}
        return {(record.key or b"").decode() for record in read_range(self.settings, topic, start=first, end=end)}


class KafkaDeadLetters(Closing):
    """Sends the records of some topics; makes the dead-letter topics that are missing when it opens.

    BrokerUnreachable, BrokerRefused.
    """

    def __init__(self, settings: Settings, topics: Sequence[str], *, group: str) -> None:
        self._group, self._settings = group, settings
        names = [dead_letter_topic_of(topic, group) for topic in topics]
        with OffsetReader(settings) as offsets:
            there = offsets.existing(names)
        # One that is there may be as its owner wants it.
        ensure_topics(settings, [dead_letter_topic(name) for name in names if name not in there])
        self._reader = RangeReader(settings)
        self._producer = RecordProducer(settings)

    def send(self, aside: SetAside, *, attempts: int) -> None:
        """Send these records; returns once the broker has them all.

        Each is read again, for the headers that a batch has no use for. A batch that cannot be unpacked is one letter
        without key and value, at its first offset.
        """
        packed = set(_firsts(aside))
        faults = {(fault.topic, fault.partition, fault.offset): fault for fault in aside}
        self._producer.send(self._letter(place, fault, attempts) for place, fault in faults.items() if place in packed)
        readable = {place: fault for place, fault in faults.items() if fault.kind != NOT_UNPACKED}
        records = self._records(readable) if readable else ()
        self._producer.send(self._letter(_place(r), readable[_place(r)], attempts, record=r) for r in records)

    def close(self) -> None:
        """Let the connections go."""
        self._reader.close()

    def _records(self, faults: Mapping[tuple[str, int, int], Fault]) -> Iterator[TopicRecord]:
        first: dict[str, dict[int, int]] = {}
        ends: dict[str, dict[int, int]] = {}
        for topic, partition, offset in sorted(faults):
            first.setdefault(topic, {}).setdefault(partition, offset)
            ends.setdefault(topic, {})[partition] = offset + 1
        while True:
            self._reader.seek(first)
            try:
                yield from (record for record in self._reader.read_up_to(ends) if _place(record) in faults)
                return
            except RecordsUnreadable as packed:  # between two of ours, and none of them
                end = end_of_batch(self._settings, packed.topic, packed.partition, first=packed.offset)
                first = {topic: dict(parts) for topic, parts in self._reader.reached.items()}
                first[packed.topic][packed.partition] = end

    def _letter(
        self, place: tuple[str, int, int], fault: Fault, attempts: int, *, record: TopicRecord | None = None
    ) -> OutgoingRecord:
        error = fault.error
        headers = dead_letter_headers(place, group=self._group, error=error, attempts=attempts, time=datetime.now(UTC))
        topic = dead_letter_topic_of(place[0], self._group)
        if record is None:
            return OutgoingRecord(topic=topic, key=None, value=None, headers=headers)
        # A dead letter that was sent back and failed again has the headers of its last failure only.
        return OutgoingRecord(topic=topic, key=record.key, value=record.value, headers=own_headers(record) + headers)


def _firsts(aside: SetAside) -> Iterator[tuple[str, int, int]]:
    """The first offset of each batch that cannot be unpacked."""
    last: Fault | None = None
    for fault in sorted(fault for fault in aside if fault.kind == NOT_UNPACKED):
        if last is None or (*last[:2], last.offset + 1, last.detail) != (*fault[:3], fault.detail):
            yield fault.topic, fault.partition, fault.offset
        last = fault


def _place(record: TopicRecord) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
