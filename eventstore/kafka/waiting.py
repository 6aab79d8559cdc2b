"""Which records of a topic wait behind a place: the markers of transactions take offsets, and are no records."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eventstore.errors import RecordsUnreadable
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader
from eventstore.kafka.consumer import RangeReader, stalled
from eventstore.settings import Settings


def places_before_end(
    ends: Mapping[int, int], beginnings: Mapping[int, int], places: Mapping[int, int]
) -> dict[int, int]:
    """Return the next offset of each partition that is not at its end; what retention has removed waits no more."""
    stands = {p: max(places.get(p, 0), beginnings[p]) for p in ends}
    return {p: stands[p] for p, end in ends.items() if stands[p] < end}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first record of a partition that waits, and its time in milliseconds; None if it cannot be unpacked."""

    offset: int
    timestamp: int | None


def first_waiting(settings: Settings, asked: Sequence[tuple[str, Mapping[int, int]]]) -> list[dict[int, Waiting]]:
    """Return each partition's first committed record from these offsets on; none where only markers are left.

    ``asked`` are topics with the offsets of partitions. Nothing is read where no offset is given. BrokerUnreachable
    where a partition gives neither a record nor its end within 10 s.
    """
    if not any(places for _, places in asked):
        return [{} for _ in asked]
    with RangeReader(settings) as reader:
        return [_first_of(reader, topic, places) if places else {} for topic, places in asked]


def _first_of(reader: RangeReader, topic: str, places: Mapping[int, int]) -> dict[int, Waiting]:
    first: dict[int, Waiting] = {}
    until = time.monotonic() + DEADLINE_SECONDS
    reader.seek({topic: places})
    while any(p not in first and reader.reached[topic][p] == place for p, place in places.items()):
        if time.monotonic() > until:
            raise stalled(reader.reached, DEADLINE_SECONDS)
        try:
            for record in reader.poll(0.2):
                first.setdefault(record.partition, Waiting(record.offset, record.timestamp))
        except RecordsUnreadable as error:
            first.setdefault(error.partition, Waiting(error.offset, None))
    return first


def offsets_behind(settings: Settings, topic: str, places: Mapping[int, int]) -> int:
    """Return how many offsets of a topic lie from the first record behind these places on; 0 where none does.

    TopicMissing, BrokerUnreachable.
    """
    with OffsetReader(settings) as offsets:
        ends, beginnings = offsets.end_offsets([topic])[topic], offsets.beginning_offsets([topic])[topic]
    (first,) = first_waiting(settings, [(topic, places_before_end(ends, beginnings, places))])
    return sum(max(0, ends[partition] - waiting.offset) for partition, waiting in first.items())
