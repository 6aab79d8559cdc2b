"""Which stores' events a topic holds: the last record of each partition, looked up in the stores that fill the topic.

Two services with an aggregate of one name may mean one topic. Their keys are alike: compaction would delete the events
of one for those of the other. The last records show it before that happens, whatever source each store names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from eventstore.errors import ForeignRecord
from eventstore.kafka.tails import last_records
from eventstore.settings import Settings
from eventstore.topics import TopicRecord

if TYPE_CHECKING:
    from eventstore.backends.sql.store import SqlEventStore


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
