"""The dead letters of a Kafka topic.

A letter is a record that cannot be changed. What was done with it is a record of `<dead-letter topic>.settled`, and
the audit of it. Both the record that is sent back and the one that settles its letter are of one Kafka transaction.
A command ends the transaction that another one left open, and then looks what is settled. One that was killed at any
point is simply run again.

Where replayed records go: back to their topic, or to the retry topic that one group alone reads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from eventstore.deadletters.letters import Action, Contents, Deed, Letter, Letters, OnProgress, Settled, Target
from eventstore.deadletters.records import (
    Decoding,
    ListedLetter,
    Place,
    header,
    open_letters,
    origin_partition,
    own_headers,
    read_settlement,
    settlement,
)
from eventstore.errors import NotFound, ReplayRefused
from eventstore.kafka.admin import OffsetReader, cleanup_policies, ensure_topics, topic_ids
from eventstore.kafka.consumer import read_range
from eventstore.kafka.groups import group_offsets
from eventstore.kafka.producer import OutgoingRecord, Publisher
from eventstore.settings import Settings
from eventstore.topics import (
    TopicRecord,
    dead_letter_topic,
    dead_letter_topic_of,
    partition_of,
    retry_topic_of,
    settled_topic,
)

# The version of a key that is no stream@version: such a record stands alone.
_NONE: Final = -1

Road = Callable[[TopicRecord], OutgoingRecord]
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

    def sent(record: TopicRecord) -> OutgoingRecord:
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


def _sent(record: TopicRecord, topic: str, partition: int) -> OutgoingRecord:
    return OutgoingRecord(
        topic=topic, key=record.key, value=record.value, headers=own_headers(record), partition=partition
    )


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


# A transaction of so many letters: what is lost of the progress of a command that is killed, and held in memory.
_LETTERS: Final = 500
_BYTES: Final = 8 << 20

Part = list[tuple[ListedLetter, TopicRecord]]


class TopicLetters(Letters):
    """The letters of a dead-letter topic. `targets` are where they may be sent, the default first.

    Raises NotFound if the topic does not exist, BrokerUnreachable, BrokerRefused.
    """

    targets: ClassVar[tuple[Target, ...]]

    def __init__(self, settings: Settings, topic: str, name: str) -> None:
        self._settings, self._topic, self._name = settings, topic, name
        self._offsets = OffsetReader(settings)
        self._settled = settled_topic(name)
        self._decoding = Decoding(settings)
        # The id of the topic: one that was deleted and made again has other letters at the same places.
        self._home = ""
        self._listed: Mapping[str, ListedLetter] = {}
        _require_home(self._offsets, name)

    @property
    def place(self) -> str:
        """The dead-letter topic."""
        return self._name

    def actions(self) -> Iterator[Action]:
        """Read the topic of settled letters."""
        return (action for action, _, _ in self._settlements())

    @abstractmethod
    def _road(self, target: Target, chosen: Chosen) -> Road:
        """Return the road to one of the targets."""

    def _fetch(self, on_progress: OnProgress = lambda done, total: None) -> Mapping[str, Letter]:
        """Read the whole topic, keeping of each letter what its headers say."""
        self._home = topic_ids(self._settings, [self._name])[self._name]
        settled = {place for _, of, places in self._settlements() if of == self._home for place in places}
        self._listed = open_letters(self._read(on_progress), settled)
        return {name: listed.letter for name, listed in self._listed.items()}

    def _contents(self, letter: Letter) -> Contents:
        """Decode the record of a letter by the registered schemas."""
        ((_, record),) = next(self._parts([self._listed[letter.id]]))
        return self._decoding.contents(letter, record)

    def _target(self, to: Target | None) -> Target:
        target = to or self.targets[0]
        if target not in self.targets:
            raise ReplayRefused(
                f"letters of {self._name!r} cannot be sent to a {target}",
                remedy=f"send them to one of: {', '.join(self.targets)}",
                place=self._name,
            )
        return target

    def _settle(self, ids: Collection[str] | None, deed: Deed, on_progress: OnProgress) -> Settled:
        """Publish the untouched records of a replay, or the edited one. Those of discarded letters stay."""
        if not self._offsets.existing([self._settled.name]):
            ensure_topics(self._settings, [self._settled])
        left: dict[str, str] = {}
        with Publisher(self._settings, f"factfold-letters-{self._name}") as publisher:
            # Chosen now that no other command can settle any of them.
            letters, done = [self._listed[letter.id] for letter in self._chosen(ids)], 0
            road = None if deed.to is None else self._road(deed.to, Chosen(letters, edited=deed.edit is not None))
            for part in self._parts(letters):
                self._publish(publisher, part, deed, road, left)
                done += len(part)
                on_progress(done, len(letters))
        return Settled(len(letters) - len(left), left)

    def _publish(self, publisher: Publisher, part: Part, deed: Deed, road: Road | None, left: dict[str, str]) -> None:
        """Send records and settle their letters in one transaction: all of it is there afterwards, or nothing."""
        sent: list[OutgoingRecord] = []
        for listed, record in part:
            try:
                sent += [] if road is None else [self._sent(listed.letter, record, road, deed)]
            except ReplayRefused as refused:
                left[listed.letter.id] = refused.message
                continue
            sent.append(settlement(deed.note(listed.letter), listed.places, self._settled.name, home=self._home))
        if sent:
            publisher.send(sent)
            publisher.commit()

    def _sent(self, letter: Letter, record: TopicRecord, road: Road, deed: Deed) -> OutgoingRecord:
        if letter.why_not is not None:
            remedy = "read the record at its place, then discard the letter"
            raise ReplayRefused(letter.why_not, remedy=remedy, place=self._name)
        sent = road(record)
        return sent if deed.edit is None else replace(sent, value=self._decoding.edited(record, deed.edit))

    def close(self) -> None:
        """Let the connections go."""
        self._offsets.close()
        self._decoding.close()

    def _read(self, on_progress: OnProgress) -> Iterator[TopicRecord]:
        start = self._offsets.beginning_offsets([self._name])[self._name]
        end = self._offsets.end_offsets([self._name])[self._name]
        total = sum(end.values()) - sum(start.values())
        for number, record in enumerate(read_range(self._settings, self._name, start=start, end=end)):
            if number % _LETTERS == 0:
                on_progress(number, total)
            yield record

    def _settlements(self) -> Iterator[tuple[Action, str, list[Place]]]:
        if self._offsets.existing([self._settled.name]):
            yield from map(read_settlement, read_range(self._settings, self._settled.name))

    def _parts(self, letters: Sequence[ListedLetter]) -> Iterator[Part]:
        """Read the records of letters again, so many at once as one transaction takes."""
        by_place = {listed.first: listed for listed in letters}
        part: Part = []
        size = 0
        for record in self._records(by_place):
            part.append((by_place[record.partition, record.offset], record))
            size += len(record.value or b"")
            if len(part) == _LETTERS or size > _BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _records(self, places: Collection[Place]) -> Iterator[TopicRecord]:
        if not places:
            return
        # Sorted by offset, the first of a partition is its lowest, the last one its highest.
        end = {partition: offset + 1 for partition, offset in sorted(places)}
        start = {partition: offset for partition, offset in sorted(places, reverse=True)}
        for record in read_range(self._settings, self._name, start=start, end=end):
            if (record.partition, record.offset) in places:
                yield record


class GroupLetters(TopicLetters):
    """The letters of a group of a topic: those of a subscription or of a projection."""

    targets = ("group", "topic")

    def __init__(self, settings: Settings, topic: str, group: str) -> None:
        super().__init__(settings, topic, dead_letter_topic_of(topic, group))
        self._group = group

    def _road(self, target: Target, chosen: Chosen) -> Road:
        if target == "group":
            return to_group(self._settings, self._topic, self._group)
        return to_topic(self._settings, self._topic, chosen, group=self._group)


def _require_home(offsets: OffsetReader, name: str) -> None:
    if not offsets.existing([name]):
        raise NotFound(
            f"there is no dead-letter topic {name!r}",
            remedy="check the topic and the group: a subscriber makes the topic when it starts",
            place=name,
            code="letter-missing",
        )
