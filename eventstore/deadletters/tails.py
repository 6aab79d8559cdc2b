"""Later events of the streams of letters: whether a topic holds some that are not replayed with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from eventstore.deadletters.records import ListedLetter
from eventstore.kafka.admin import OffsetReader
from eventstore.kafka.consumer import read_range
from eventstore.settings import Settings
from eventstore.topics import TopicRecord

# The version of a key that is no stream@version: such a record stands alone.
_NONE: Final = -1


def stream_and_version(key: bytes | None) -> tuple[str, int]:
    """Return what the key of an event says, `order-7@3`. Another key has no stream."""
    stream, _, version = (key or b"").decode(errors="replace").rpartition("@")
    return (stream, int(version)) if version.isascii() and version.isdigit() else ("", _NONE)


def with_later_events(settings: Settings, topic: str, letters: Sequence[ListedLetter]) -> frozenset[str]:
    """Return the streams that would be out of order in a topic: read from the first of the letters on."""
    if len({partition for listed in letters for partition, _ in listed.places}) > 1:
        return frozenset(stream_and_version(listed.key)[0] for listed in letters)  # they are read in no one order
    start: dict[int, int] = {}
    for name, partition, offset in (listed.origin for listed in letters):
        if name == topic and partition is not None and offset is not None:
            start[partition] = min(offset, start.get(partition, offset))
    if not start:
        return frozenset()
    with OffsetReader(settings) as offsets:
        ends = offsets.end_offsets([topic])[topic]
        begins = offsets.beginning_offsets([topic])[topic]
    places = {p: max(offset, begins[p]) for p, offset in start.items() if p in ends}
    records = read_range(settings, topic, start=places, end={p: ends[p] for p in places})
    return held_back(letters, records)


def held_back(letters: Iterable[ListedLetter], records: Iterable[TopicRecord]) -> frozenset[str]:
    """Return the streams with records of later versions that are no letters, or with letters that are out of order."""
    replayed: dict[str, list[int]] = {}
    for listed in letters:
        stream, version = stream_and_version(listed.key)
        replayed.setdefault(stream, []).append(version)
    replayed.pop("", None)
    disordered = {stream for stream, versions in replayed.items() if versions != sorted(versions)}
    first = {stream: min(versions) for stream, versions in replayed.items()}
    known = {stream: set(versions) for stream, versions in replayed.items()}
    keys = (stream_and_version(record.key) for record in records if record.value is not None)
    later = {s for s, version in keys if s in first and version > first[s] and version not in known[s]}
    return frozenset(disordered | later)
