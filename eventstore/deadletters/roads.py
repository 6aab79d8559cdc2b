"""Where replayed records go: back to their topic, or to the retry topic that one group alone reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eventstore.deadletters.records import ListedLetter, SentRecord, header, origin_partition, own_headers
from eventstore.errors import ReplayRefused
from eventstore.kafka.admin import OffsetReader, cleanup_policies, ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.groups import group_offsets
from eventstore.settings import Settings
from eventstore.topics import TopicRecord, dead_letter_topic, partition_of, retry_topic_of

# The version of a key that is no stream@version: such a record stands alone.
_NONE: Final = -1

Road = Callable[[TopicRecord], SentRecord]
"""Returns what to publish for a letter's record. Raises ReplayRefused if it cannot go there."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The letters that one command replays, and whether their payload is edited."""

    letters: Sequence[ListedLetter]
    edited: bool


def to_topic(settings: Settings, topic: str, chosen: Chosen, *, group: str | None) -> Road:
    """Return the road back to a topic, and to the partition of a record. Raises ReplayRefused, TopicMissing.

    In a compacted topic a repeated event takes the place of its first copy, behind newer events of its stream. Only a
    projection's letters go there, unedited, and only together with every later event of their stream.
    """
    with OffsetReader(settings) as offsets:
        count = offsets.partitions([topic])[topic]
    held: frozenset[str] = frozenset()
    if "compact" in cleanup_policies(settings, [topic])[topic].split(","):
        _require_projection(settings, topic, group, edited=chosen.edited)
        held = with_later_events(settings, topic, chosen.letters)

    def sent(record: TopicRecord) -> SentRecord:
        if (stream := stream_and_version(record.key)[0]) in held:
            raise ReplayRefused(
                f"{topic!r} holds later events of {stream} that are not replayed, and this one would follow them",
                remedy="replay all letters of the stream once its group has set those events aside, too",
                place=topic,
            )
        return _sent(record, topic, _partition(record, topic, count))

    return sent


def _require_projection(settings: Settings, topic: str, group: str | None, *, edited: bool) -> None:
    if group is None or group_offsets(settings, topic, group=group):
        raise ReplayRefused(
            f"{topic!r} is compacted: a repeated event would follow newer events of its stream",
            remedy="replay to the group (--to group), letters of branches to their branch (--branches MODULE:NAME)",
            place=topic,
        )
    if edited:
        raise ReplayRefused(
            f"{topic!r} is compacted: an edited event would take the place of the recorded one",
            remedy="let the service record an event that corrects it, or discard the letter",
            place=topic,
        )


def to_group(settings: Settings, topic: str, group: str) -> Road:
    """Return the road to the retry topic of a group, which is made if it is missing. Raises ReplayRefused."""
    if not group_offsets(settings, topic, group=group):
        raise ReplayRefused(
            f"group {group!r} has no place in topic {topic!r}: no subscription would read its retry topic",
            remedy="start the group's subscriber first, or rebuild the projection (factfold projections rebuild)",
            place=f"{topic} {group}",
        )
    name = retry_topic_of(topic, group)
    with OffsetReader(settings) as offsets:
        if name not in offsets.existing([name]):
            ensure_topics(settings, [dead_letter_topic(name)])
    # The others are those of records that wait for their next attempt.
    return lambda record: _sent(record, name, 0)


def _sent(record: TopicRecord, topic: str, partition: int) -> SentRecord:
    return SentRecord(topic, partition, record.key, record.value, own_headers(record))


def _partition(record: TopicRecord, topic: str, count: int) -> int:
    """The partition that it came from. One that died in the retry topic goes by its stream, as its writer chose."""
    partition = origin_partition(record, topic)
    if partition is None:
        stream = header(record, "ce_subject")
        return partition_of((record.key or b"").decode(errors="replace") if stream is None else stream, count)
    if partition >= count:
        raise ReplayRefused(
            f"the record came from partition {partition} of {topic!r}, which has {count}",
            remedy="replay it to the group, or discard it",
            place=topic,
        )
    return partition


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
