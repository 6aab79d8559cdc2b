"""Records given up, sent untouched to the dead-letter topics of their group, with what was wrong with them in headers.

The layout is that of a subscription's dead letters. A batch that is repeated sends its dead letters again: source
topic, partition and offset, in the headers, tell which are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from eventstore.closing import Closing
from eventstore.kafka.admin import OffsetReader, ensure_topics
from eventstore.kafka.consumer import RangeReader
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.settings import Settings
from eventstore.topics import DEAD_LETTER_PREFIX, TopicRecord, dead_letter_headers, dead_letter_topic

if TYPE_CHECKING:
    from projections.faults import Fault
    from projections.set_aside import SetAside


def dead_letters_of(topic: str, *, group: str) -> str:
    """The topic that a group's dead letters of a topic go to."""
    return f"{topic}.{group}.dead-letter"


class KafkaDeadLetters(Closing):
    """Sends the records of some topics; makes the dead-letter topics that are missing when it opens.

    BrokerUnreachable, BrokerRefused.
    """

    def __init__(self, settings: Settings, topics: Sequence[str], *, group: str) -> None:
        self._group = group
        wanted = [dead_letters_of(topic, group=group) for topic in topics]
        with OffsetReader(settings) as offsets:
            there = offsets.existing(wanted)
        # One that is there may be as its owner wants it.
        ensure_topics(settings, [dead_letter_topic(name) for name in wanted if name not in there])
        self._reader = RangeReader(settings)
        self._producer = RecordProducer(settings)

    def send(self, aside: SetAside, *, attempts: int) -> None:
        """Send these records; returns once the broker has them all.

        Each is read again, for the headers that a batch has no use for.
        """
        faults = {(fault.topic, fault.partition, fault.offset): fault for fault in aside}
        found = self._records(faults)
        self._producer.send(self._letter(record, faults[_place(record)], attempts) for record in found)

    def close(self) -> None:
        """Let the connections go."""
        self._reader.close()

    def _records(self, faults: Mapping[tuple[str, int, int], Fault]) -> Iterator[TopicRecord]:
        first: dict[str, dict[int, int]] = {}
        ends: dict[str, dict[int, int]] = {}
        for topic, partition, offset in sorted(faults):
            first.setdefault(topic, {}).setdefault(partition, offset)
            ends.setdefault(topic, {})[partition] = offset + 1
        self._reader.seek(first)
        return (record for record in self._reader.read_up_to(ends) if _place(record) in faults)

    def _letter(self, record: TopicRecord, fault: Fault, attempts: int) -> OutgoingRecord:
        told = dead_letter_headers(
            _place(record), group=self._group, error=fault.error, attempts=attempts, time=datetime.now(UTC)
        )
        # A dead letter that was sent back and died again tells of its last death only.
        own = tuple(pair for pair in record.headers if not pair[0].startswith(DEAD_LETTER_PREFIX))
        return OutgoingRecord(
            topic=dead_letters_of(record.topic, group=self._group),
            key=record.key,
            value=record.value,
            headers=own + told,
        )


def _place(record: TopicRecord) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
