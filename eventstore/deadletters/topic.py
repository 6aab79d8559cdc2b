"""The dead letters of a Kafka topic.

A letter is a record that cannot be changed. What was done with it is a record of `<dead-letter topic>.settled`, and
the audit of it. Both the record that is sent back and the one that settles its letter are of one Kafka transaction.
A command ends the transaction that another one left open, and then looks what is settled. One that was killed at any
point is simply run again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from eventstore.deadletters.decoding import Decoding
from eventstore.deadletters.letters import Action, Contents, Deed, Letter, Letters, OnProgress, Settled, Target
from eventstore.deadletters.records import (
    ListedLetter,
    Place,
    SentRecord,
    open_letters,
    read_settlement,
    settlement,
)
from eventstore.deadletters.roads import Chosen, Road, to_group, to_topic
from eventstore.errors import NotFound, ReplayRefused
from eventstore.kafka.admin import OffsetReader, ensure_topics
from eventstore.kafka.consumer import read_range
from eventstore.kafka.producer import Publisher
from eventstore.kafka.topic_settings import topic_ids
from eventstore.settings import Settings
from eventstore.topics import TopicRecord, dead_letter_topic_of, settled_topic

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
        sent: list[SentRecord] = []
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

    def _sent(self, letter: Letter, record: TopicRecord, road: Road, deed: Deed) -> SentRecord:
        if letter.why_not is not None:
            remedy = "read the record at its place, then discard the letter"
            raise ReplayRefused(letter.why_not, remedy=remedy, place=self._name)
        sent = road(record)
        return sent if deed.edit is None else sent._replace(value=self._decoding.edited(record, deed.edit))

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
