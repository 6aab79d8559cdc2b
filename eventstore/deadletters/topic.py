"""The dead letters of a Kafka topic.

A letter is a record that cannot be changed. What was done with it is a record of `<dead-letter topic>.settled`, and
the audit of it. Both the record that is sent back and the one that settles its letter are of one Kafka transaction.
A command ends the transaction that another one left open, and then looks what is settled. One that was killed at any
point is simply run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from eventstore.deadletters.decoding import Decoding
from eventstore.deadletters.letters import (
    Action,
    Contents,
    Letter,
    Letters,
    OnProgress,
    Settled,
    Target,
    chosen,
    operator,
    require_single,
)
from eventstore.deadletters.records import (
    ListedLetter,
    Place,
    SentRecord,
    open_letters,
    read_settlement,
    settlement,
)
from eventstore.deadletters.roads import Chosen, Road, to_group, to_topic
from eventstore.errors import LetterMissing, ReplayRefused
from eventstore.fields.serialization import AvroDecoder
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
Act = Callable[[ListedLetter, TopicRecord], SentRecord | None]
"""Returns what to send for a letter, None for nothing. ReplayRefused leaves the letter open."""


def group_letters(
    settings: Settings, topic: str, *, group: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> TopicLetters:
    """Return the dead letters of a group of a topic: those of a subscription or of a projection.

    Args:
        settings: The settings of Kafka.
        topic: The topic that the group reads.
        group: The group.
        clock: Gives the times of actions.

    Raises:
        LetterMissing: The group has no dead-letter topic.

    Examples:
        >>> with group_letters(Settings(), "payment.suspicious", group="fraud") as letters:
        ...     letters.replay()
    """
    return TopicLetters(
        settings,
        dead_letter_topic_of(topic, group),
        roads={
            "group": lambda chosen: to_group(settings, topic, group),
            "topic": lambda chosen: to_topic(settings, topic, chosen, group=group),
        },
        default="group",
        clock=clock,
    )


class TopicLetters(Letters):
    """The letters of a dead-letter topic: `roads` are where they may be sent, and `default` is one of them.

    Raises LetterMissing if the topic does not exist, BrokerUnreachable, BrokerRefused.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        *,
        roads: Mapping[Target, Callable[[Chosen], Road]],
        default: Target,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings, self._name = settings, name
        self._roads, self._default = roads, default
        self._clock = clock
        self._offsets = OffsetReader(settings)
        self._settled = settled_topic(name)
        self._decoding = Decoding(settings)
        _require_home(self._offsets, name)

    @property
    def place(self) -> str:
        """The dead-letter topic."""
        return self._name

    def open(self, *, on_progress: OnProgress = lambda done, total: None) -> Iterator[Letter]:
        """Read the whole topic, keeping of each letter what its headers say."""
        return (listed.letter for listed in self._open(self._home(), on_progress).values())

    def show(self, letter_id: str) -> Contents:
        """Decode the record of a letter by the registered schemas."""
        letters = chosen(self._open(self._home()), [letter_id], self._name)
        ((listed, record),) = next(self._parts(letters))
        return self._decoding.contents(listed.letter, record)

    def replay(
        self,
        ids: Collection[str] | None = None,
        *,
        to: Target | None = None,
        edit: Mapping[str, Any] | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Publish the untouched records, or the edited one, and settle their letters, as `Letters.replay` says."""
        target = to or self._default
        if edit is not None:
            require_single(ids, self._name)
        self._require_road(target)

        def acting(letters: Sequence[ListedLetter]) -> Act:
            road = self._roads[target](Chosen(letters, edited=edit is not None))

            def act(listed: ListedLetter, record: TopicRecord) -> SentRecord:
                _require_record(listed.letter, self._name)
                sent = road(record)
                return sent if edit is None else sent._replace(value=self._decoding.edited(record, edit))

            return act

        action = self._action("replay", by, result="sent", to=target, edited=edit is not None)
        return self._settle(ids, acting, action, on_progress)

    def discard(
        self,
        ids: Collection[str] | None = None,
        *,
        why: str | None = None,
        by: str | None = None,
        on_progress: OnProgress = lambda done, total: None,
    ) -> Settled:
        """Settle letters. Their records stay in the dead-letter topic."""
        action = self._action("discard", by, result="discarded", why=why)
        return self._settle(ids, lambda letters: lambda listed, record: None, action, on_progress)

    def actions(self) -> Iterator[Action]:
        """Read the topic of settled letters."""
        return (action for action, _, _ in self._settlements())

    @property
    def decoder(self) -> AvroDecoder:
        """Decodes records by the schemas topic. Raises TopicMissing, BrokerUnreachable."""
        return self._decoding.decoder

    def close(self) -> None:
        """Let the connections go."""
        self._offsets.close()
        self._decoding.close()

    def _require_road(self, target: Target) -> None:
        if target not in self._roads:
            raise ReplayRefused(
                f"letters of {self._name!r} cannot be sent to a {target}",
                remedy=f"send them to one of: {', '.join(self._roads)}",
                place=self._name,
            )

    def _action(self, action: Any, by: str | None, **fields: Any) -> Callable[[Letter], Action]:
        actor = by or operator()

        def of(letter: Letter) -> Action:
            return Action(
                letter=letter.id, origin=letter.origin, event_id=letter.event_id, action=action, by=actor,
                time=self._clock(), **fields,
            )  # fmt: skip

        return of

    def _settle(
        self,
        ids: Collection[str] | None,
        acting: Callable[[Sequence[ListedLetter]], Act],
        action: Callable[[Letter], Action],
        on_progress: OnProgress,
    ) -> Settled:
        self._ensure_settled()
        left: dict[str, str] = {}
        with Publisher(self._settings, f"factfold-letters-{self._name}") as publisher:
            home = self._home()
            letters = chosen(self._open(home), ids, self._name)  # now that no other command can settle any of them
            act, done = acting(letters), 0
            for part in self._parts(letters):
                self._publish(publisher, part, act, lambda listed: self._mark(listed, action, home), left)
                done += len(part)
                on_progress(done, len(letters))
        return Settled(len(letters) - len(left), left)

    def _publish(
        self,
        publisher: Publisher,
        part: Part,
        act: Act,
        mark: Callable[[ListedLetter], SentRecord],
        left: dict[str, str],
    ) -> None:
        """Send records and settle their letters in one transaction: all of it is there afterwards, or nothing."""
        sent: list[SentRecord] = []
        for listed, record in part:
            try:
                back = act(listed, record)
            except ReplayRefused as refused:
                left[listed.letter.id] = refused.message
                continue
            sent += [] if back is None else [back]
            sent.append(mark(listed))
        if sent:
            publisher.send(sent)
            publisher.commit()

    def _open(self, home: str, on_progress: OnProgress = lambda done, total: None) -> dict[str, ListedLetter]:
        settled = {place for _, of, places in self._settlements() if of == home for place in places}
        return open_letters(self._read(on_progress), settled)

    def _read(self, on_progress: OnProgress) -> Iterator[TopicRecord]:
        start = self._offsets.beginning_offsets([self._name])[self._name]
        end = self._offsets.end_offsets([self._name])[self._name]
        total = sum(end.values()) - sum(start.values())
        for number, record in enumerate(read_range(self._settings, self._name, start=start, end=end)):
            if number % _LETTERS == 0:
                on_progress(number, total)
            yield record

    def _home(self) -> str:
        """The id of the topic: one that was deleted and made again has other letters at the same places."""
        return topic_ids(self._settings, [self._name])[self._name]

    def _mark(self, listed: ListedLetter, action: Callable[[Letter], Action], home: str) -> SentRecord:
        return settlement(action(listed.letter), listed.places, self._settled.name, home=home)

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

    def _ensure_settled(self) -> None:
        if not self._offsets.existing([self._settled.name]):
            ensure_topics(self._settings, [self._settled])


def _require_record(letter: Letter, place: str) -> None:
    if letter.why_not is not None:
        raise ReplayRefused(letter.why_not, remedy="read the record at its place, then discard the letter", place=place)


def _require_home(offsets: OffsetReader, name: str) -> None:
    if not offsets.existing([name]):
        raise LetterMissing(
            f"there is no dead-letter topic {name!r}",
            remedy="check the topic and the group: a subscriber makes the topic when it starts",
            place=name,
        )
