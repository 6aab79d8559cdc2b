"""The last record of each partition: how far a topic has come, read from the topic itself.

Which stores' events a topic holds: the last record of each partition, looked up in the stores that fill the topic.

Two services with an aggregate of one name may mean one topic. Their keys are alike: compaction would delete the events
of one for those of the other. The last records show it before that happens, whatever source each store names.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaException

from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import ForeignRecord, RelayError
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader
from eventstore.kafka.consumer import RangeReader
from eventstore.kafka.producer import Letters
from eventstore.settings import Settings
from eventstore.topics import TopicRecord, by_partition, by_topic

if TYPE_CHECKING:
    from eventstore.backends.sql.store import SqlEventStore


Partition = tuple[str, int]

# Behind the last record lie markers of transactions, and what killed writers left of theirs: windows grow.
_WINDOW: Final = 32
_GROWTH: Final = 8
# Kafka ends a transaction whose writer is silent after 60 s, unless that writer asked for more.
PATIENCE_SECONDS: Final = 70.0
_LOOK_SECONDS: Final = 0.1


def last_records(
    settings: Settings, topics: Iterable[str], *, may_be_emptied: bool = False
) -> dict[Partition, TopicRecord]:
    """Return the last committed record of each partition that has one; a topic that does not exist has none.

    Foreign tombstones and the records they delete do not count: a tombstone of a deleted event names its row of the
    store. Raises RelayError if all of them were deleted, unless they may be.
    BrokerUnreachable, BrokerRefused.
    """
    with OffsetReader(settings) as offsets, RangeReader(settings) as reader:
        there = offsets.existing(topics)
        begins, ends = by_partition(offsets.beginning_offsets(there)), by_partition(offsets.end_offsets(there))
        records: dict[Partition, TopicRecord] = {}
        asked, window = {place for place, end in ends.items() if begins[place] < end}, _WINDOW
        while asked:
            starts = {place: max(begins[place], ends[place] - window) for place in asked}
            records |= _last_between(reader, starts, {place: ends[place] for place in asked})
            asked = {place for place in asked if place not in records and begins[place] < starts[place]}
            window *= _GROWTH
        if not may_be_emptied:
            _require_none_forgotten(begins, records)
        return records


def _require_none_forgotten(begins: Mapping[Partition, int], records: Mapping[Partition, TopicRecord]) -> None:
    """A partition that had records and has none left does not say how far it came: all of it would come again."""
    for (topic, partition), begin in begins.items():
        if begin > 0 and (topic, partition) not in records:
            raise RelayError(
                f"every record of {topic}[{partition}] was deleted: the last published event is unknown",
                remedy="publish the store into a topic of another name, and limit the retention of a topic only if "
                "its category has events more often than that",
                place=f"{topic}[{partition}]",
                code="topic-not-relayed",
            )


def _last_between(
    reader: RangeReader, starts: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> dict[Partition, TopicRecord]:
    reader.seek(by_topic(starts))
    latest: dict[Partition, dict[bytes | None, TopicRecord]] = {}
    for record in reader.read_up_to(by_topic(ends)):
        of_partition = latest.setdefault((record.topic, record.partition), {})
        of_partition.pop(record.key, None)
        if record.value is not None or any(name == "ce_id" for name, _ in record.headers):
            of_partition[record.key] = record
    return {place: records[next(reversed(records))] for place, records in latest.items() if records}


def wait_for_transactions(settings: Settings, topics: Sequence[str]) -> None:
    """Wait until no transaction is open in these topics: committed records may be hidden behind it.

    RelayError where one stays open, TopicMissing, BrokerUnreachable, BrokerRefused.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    with OffsetReader(settings) as offsets:
        while held := _held(offsets, topics):
            if time.monotonic() > until:
                raise RelayError(
                    f"another producer's transaction stays open in {', '.join(held)}",
                    remedy="stop the other writer, or end it: kafka-transactions.sh find-hanging, then abort",
                    place=", ".join(held),
                    code="topic-not-relayed",
                )
            time.sleep(_LOOK_SECONDS)


def _held(offsets: OffsetReader, topics: Sequence[str]) -> list[str]:
    # In this order: what is committed in between makes them equal, and never the other way round.
    last, stable = offsets.end_offsets(topics, committed=False), offsets.end_offsets(topics)
    return [f"{t}[{p}]" for t, parts in last.items() for p, end in parts.items() if stable[t][p] < end]


MISSING: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC"})
# A broker that does not answer at once is asked again later.
_ANSWER_SECONDS: Final = 2.0


class Following:
    """The topics that a member reads, looked after while it reads."""

    def __init__(
        self, subscription: Subscription[..., Any], settings: Settings, letters: Letters, *, deadline: float
    ) -> None:
        self._subscription = subscription
        self._settings = settings
        self._letters = letters
        self._deadline = deadline
        self._looks_at = 0.0
        self._origins: dict[str, str] = {}

    @property
    def topics(self) -> list[str]:
        """The topics read now."""
        return list(self._origins)

    def origin(self, topic: str) -> str:
        """Return the topic that records of a retry topic were published in, of another topic itself."""
        return self._origins.get(topic, topic)

    def is_retried(self, topic: str) -> bool:
        """Say whether a topic is a retry topic of the group."""
        return self.origin(topic) != topic

    def begin(self) -> None:
        """Find the topics; TopicMissing, BrokerUnreachable, BrokerRefused."""
        with OffsetReader(self._settings, deadline=self._deadline) as offsets:
            offsets.partitions(self._subscription.topics)
            self._follow(offsets, offsets.names())

    def look(self, consumer: Consumer) -> bool:
        """Ask now and then which topics there are; say whether others are to be read than before."""
        if time.monotonic() < self._looks_at:
            return False
        self._looks_at = time.monotonic() + DEADLINE_SECONDS
        try:
            existing = list(consumer.list_topics(timeout=_ANSWER_SECONDS).topics)
        except KafkaException:
            return False
        before = self._origins
        if self._read_now(existing) != before:
            with OffsetReader(self._settings, deadline=self._deadline) as offsets:
                self._follow(offsets, existing)
        return self._origins != before

    def look_soon(self) -> None:
        """Ask at the next occasion."""
        self._looks_at = 0.0

    def may_go(self, topic: str | None) -> bool:
        """Say whether a topic may be deleted while it is read: it was not declared by its name."""
        return topic not in self._subscription.topics and topic is not None

    def _follow(self, offsets: OffsetReader, existing: list[str]) -> None:
        topics = self._subscription.chosen(existing)
        for topic in topics:
            self._letters.ensure_topics(offsets, topic)
        made = map(self._subscription.retry_topic_of, topics) if self._subscription.retry else ()
        self._origins = self._read_now([*existing, *made])

    def _read_now(self, existing: list[str]) -> dict[str, str]:
        """Return the topics to read, each with the one that its records were published in.

        A retry topic is there for `retry`, or because dead letters were replayed to the group.
        """
        topics, names = self._subscription.chosen(existing), set(existing)
        retried = {self._subscription.retry_topic_of(topic): topic for topic in topics}
        return {topic: topic for topic in topics} | {name: retried[name] for name in retried if name in names}


@dataclass(frozen=True, slots=True)
class TopicOwners:
    """What the last records of topics say, by topic.

    ``foreign`` has a record of none of the given stores. ``sources`` are the stores that wrote the last records.
    """

    foreign: Mapping[str, ForeignRecord] = field(default_factory=dict)
    sources: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def require_own(self) -> None:
        """Raise ForeignRecord for the first record that is none of the stores'."""
        for error in self.foreign.values():
            raise error


def topic_owners(settings: Settings, stores: Iterable[SqlEventStore]) -> TopicOwners:
    """Look at the topics of the stores' categories that exist; BrokerUnreachable, BrokerRefused, StoreUnavailable.

    An event that a store has deleted is its event still.
    """
    every = list(stores)
    topics = {category.topic for store in every for category in store.categories()}
    if not topics:
        return TopicOwners()
    records = list(last_records(settings, topics, may_be_emptied=True).values())
    ids = [event_id for record in records if (event_id := event_id_of(record)) is not None]
    known = {event_id for store in every for event_id in store.recorded_ids(ids)}
    foreign = {record.topic: _foreign(record) for record in reversed(records) if event_id_of(record) not in known}
    sources: dict[str, frozenset[str]] = {}
    for record in records:
        sources[record.topic] = sources.get(record.topic, frozenset()) | {source_of(record)}
    return TopicOwners(foreign, sources)


def event_id_of(record: TopicRecord) -> UUID | None:
    """Return the id of the event that a record says it is, None for a record of no event."""
    try:
        return UUID((dict(record.headers).get("ce_id") or b"").decode())
    except ValueError:
        return None


def source_of(record: TopicRecord) -> str:
    """Return the CloudEvents source of a record, `none` without one."""
    return (dict(record.headers).get("ce_source") or b"none").decode(errors="replace")


def strange_end(record: TopicRecord) -> str:
    """Return the message for a topic that ends with a record of an unknown event, with the source of the record."""
    key, source = (record.key or b"")[:80], source_of(record)
    return f"{record.topic!r} ends with a record that is no event of this store: {key!r} of source {source!r}"


def _foreign(record: TopicRecord) -> ForeignRecord:
    return ForeignRecord(
        strange_end(record),
        remedy="give the category a topic of its own (source=, topic_prefix=, declare_category(topic=)), "
        "or a new one after a restore of an older backup",
        place=record.place,
    )
