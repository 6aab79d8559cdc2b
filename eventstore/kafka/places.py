"""A member's partitions and offsets: where it begins, what it has done, what the broker has noted of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from eventstore.delivery.subscriptions import Start
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader
from eventstore.kafka.consumer import PassedOver
from eventstore.settings import Settings

# The group moved on without us, or is moving: the next owner reads again what could not be committed.
_OVERTAKEN: Final = frozenset(
    {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
        "STALE_MEMBER_EPOCH",
        "_NO_OFFSET",
        "_ASSIGNMENT_LOST",
        "_DESTROY",
        "_STATE",
        # The topic itself was deleted, and the next poll says so.
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
    }
)
_RETRIED: Final = frozenset(
    {
        "_TRANSPORT",
        "_TIMED_OUT",
        "_WAIT_COORD",
        "_ALL_BROKERS_DOWN",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS",
    }
)


Partition = tuple[str, int]


def partition_of(message: Message | PassedOver) -> Partition:
    """Return a record's topic and the number of its partition."""
    return message.topic() or "", message.partition() or 0


class Places:
    """Offsets of the partitions a member owns; commits run in the background, one at a time."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._owned: set[Partition] = set()
        self._done: dict[Partition, int] = {}
        self._noted: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._on_its_way = False

    def owns(self, message: Message | PassedOver) -> bool:
        """Say whether a record's partition is ours now."""
        return partition_of(message) in self._owned

    def owned(self) -> list[TopicPartition]:
        """Return our partitions."""
        return [TopicPartition(topic, partition) for topic, partition in self._owned]

    def given(self, partitions: Iterable[TopicPartition]) -> None:
        """Take partitions over."""
        self._owned.update((p.topic, p.partition) for p in partitions)

    def taken(self, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions go; nothing more is committed for them."""
        for partition in ((p.topic, p.partition) for p in partitions):
            self._owned.discard(partition)
            for offsets in (self._done, self._noted, self._ends):
                offsets.pop(partition, None)

    def at_end(self, message: Message) -> None:
        """Note that a partition has nothing more before this offset: markers of transactions carry no message."""
        self._ends[partition_of(message)] = message.offset() or 0

    def done(self, messages: Iterable[Message | PassedOver]) -> None:
        """Note records as done and begin to commit."""
        self._move(messages)
        self._commit_soon()

    def take(self, messages: Iterable[Message | PassedOver]) -> bool:
        """Commit records before they are handled; say whether the broker has noted it, or the group is moving."""
        self._move(messages)
        if not (waiting := self._waiting()):
            return True
        try:
            for answer in self._consumer.commit(offsets=waiting, asynchronous=False) or ():
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as error:
            if error.args[0].name() not in _OVERTAKEN:
                raise
            return False
        self._note(waiting)
        return True

    def undone(self, records: Iterable[tuple[Partition, int]]) -> None:
        """Take back that records are done, of those that are: they are handled later, here or by another member."""
        for partition, offset in records:
            if self._done.get(partition, offset) > offset:
                self._done[partition] = offset

    def _move(self, messages: Iterable[Message | PassedOver]) -> None:
        offsets = {partition_of(message): (message.offset() or 0) + 1 for message in messages}
        self._done.update((partition, offset) for partition, offset in offsets.items() if partition in self._owned)

    def commit_idle(self) -> None:
        """Commit, between two batches, what was left over: ends without records, a commit that failed."""
        for partition, offset in self._ends.items():
            if partition in self._owned and offset > self._done.get(partition, -1):
                self._done[partition] = offset
        self._ends.clear()
        self._commit_soon()

    def commit_now(self) -> None:
        """Commit and wait for the answer; a group that moved on without us takes nothing, and that is no error."""
        if not (waiting := self._waiting()):
            return
        try:
            self._consumer.commit(offsets=waiting, asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() not in _OVERTAKEN | _RETRIED:
                raise
        else:
            self._note(waiting)

    def committed(self, error: KafkaError | None, partitions: Iterable[TopicPartition]) -> None:
        """Take the answer to a commit; KafkaException where it says that there is no use in another one."""
        self._on_its_way = False
        if error is None:
            self._note(partition for partition in partitions if partition.error is None)
        elif error.name() not in _OVERTAKEN | _RETRIED:
            raise KafkaException(error)

    def _commit_soon(self) -> None:
        if not self._on_its_way and (waiting := self._waiting()):
            self._on_its_way = True
            self._consumer.commit(offsets=waiting, asynchronous=True)

    def _waiting(self) -> list[TopicPartition]:
        return [
            TopicPartition(*partition, offset)
            for partition, offset in self._done.items()
            if self._noted.get(partition) != offset
        ]

    def _note(self, partitions: Iterable[TopicPartition]) -> None:
        offsets = {(p.topic, p.partition): p.offset for p in partitions}
        self._noted.update((partition, offset) for partition, offset in offsets.items() if partition in self._owned)


def start_places(
    settings: Settings, consumer: Consumer, partitions: list[TopicPartition], *, start: Start
) -> list[TopicPartition]:
    """Return partitions with the offsets to begin at: where the group stands, or where the subscription starts.

    What a start leaves out is committed at once: a member that dies before its first record must not make the next
    one begin at a later end.
    """
    known = consumer.committed(partitions, timeout=DEADLINE_SECONDS) if partitions else []
    new = [(p.topic, p.partition) for p in known if p.offset < 0]
    starts = start_offsets(settings, new, start=start) if new and start != "beginning" else {}
    if starts:
        consumer.commit(offsets=[TopicPartition(*p, offset) for p, offset in starts.items()], asynchronous=False)
    return [
        TopicPartition(
            p.topic,
            p.partition,
            p.offset if p.offset >= 0 else starts.get((p.topic, p.partition), OFFSET_BEGINNING),
        )
        for p in known
    ]


def start_offsets(settings: Settings, partitions: Sequence[Partition], *, start: Start) -> dict[Partition, int]:
    """Return the offset of each partition that a start means; TopicMissing, BrokerUnreachable.

    A time means the first record not older than it, or the end. Partitions an offset is not given for begin at their
    beginning.
    """
    topics = {topic for topic, _ in partitions}
    with OffsetReader(settings) as reader:
        beginnings, ends = reader.beginning_offsets(topics), reader.end_offsets(topics)
        if isinstance(start, datetime):
            offsets: Mapping[str, Mapping[int, int]] = reader.offsets_at(start, topics)
        elif isinstance(start, str):
            offsets = {"beginning": beginnings, "end": ends}[start]
        else:
            offsets = dict.fromkeys(topics, start)
    return {
        (topic, p): min(max(offsets[topic].get(p, beginnings[topic][p]), beginnings[topic][p]), ends[topic][p])
        for topic, p in partitions
    }
