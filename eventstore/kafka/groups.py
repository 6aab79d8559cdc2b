"""A group seen from outside: how far it is behind, and its offsets moved while nobody is in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from eventstore.delivery.source import Lag, PartitionLag
from eventstore.errors import GroupActive
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, Offsets, quiet, typed_errors
from eventstore.kafka.consumer import RangeReader
from eventstore.kafka.places import start_offsets
from eventstore.settings import Settings
from eventstore.subscriptions import Start
from eventstore.topics import retry_topic_of


def group_offsets(settings: Settings, topic: str, *, group: str) -> dict[int, int]:
    """Return the next offset of each partition the group has a place in; BrokerUnreachable."""
    return _places(settings, [topic], group=group)[topic]


def _places(settings: Settings, topics: Sequence[str], *, group: str) -> Offsets:
    admin, servers = AdminClient(quiet(settings.kafka)), settings.kafka.bootstrap_servers
    with typed_errors(servers, topic=", ".join(topics)):
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=DEADLINE_SECONDS
        )
        found = asked[group].result(DEADLINE_SECONDS + 1).topic_partitions
    return {topic: {p.partition: p.offset for p in found if p.topic == topic and p.offset >= 0} for topic in topics}


def group_lag(settings: Settings, topic: str, *, group: str) -> Lag:
    """Return how far a group is behind the committed records of a topic; TopicMissing, BrokerUnreachable.

    A partition without a place counts from its beginning.
    """
    return subscription_lag(settings, [topic], group=group)


def read_topics(settings: Settings, topics: Iterable[str], *, group: str) -> list[str]:
    """Return topics and those of the group's retry topics for them that exist; BrokerUnreachable."""
    each = list(topics)
    with OffsetReader(settings) as reader:
        return each + reader.existing(retry_topic_of(topic, group) for topic in each)


def subscription_lag(settings: Settings, topics: Iterable[str], *, group: str) -> Lag:
    """Return how far a group is behind in several topics; the errors of `group_lag`."""
    each = list(topics)
    if not each:
        return Lag(())
    with OffsetReader(settings) as reader:
        ends, beginnings = reader.end_offsets(each), reader.beginning_offsets(each)
    places = _places(settings, each, group=group)
    waiting = {topic: _waiting(ends[topic], beginnings[topic], places[topic]) for topic in each}
    ages = _ages(settings, waiting)
    return Lag(
        tuple(
            PartitionLag(p, end - waiting[topic].get(p, end), ages[topic].get(p, 0.0), topic)
            for topic in each
            for p, end in sorted(ends[topic].items())
        )
    )


def _waiting(ends: Mapping[int, int], beginnings: Mapping[int, int], places: Mapping[int, int]) -> dict[int, int]:
    """Return the next offset of each partition with records that wait."""
    stands = {**beginnings, **places}
    return {p: max(stands[p], beginnings[p]) for p, end in ends.items() if stands[p] < end}


def _ages(settings: Settings, waiting: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, float]]:
    """Return the age of the record at each offset; none where only the marker of a transaction is left there."""
    if not any(waiting.values()):
        return {topic: {} for topic in waiting}
    with RangeReader(settings) as reader:
        return {topic: _ages_of(reader, topic, places) if places else {} for topic, places in waiting.items()}


def _ages_of(reader: RangeReader, topic: str, places: Mapping[int, int]) -> dict[int, float]:
    ages: dict[int, float] = {}
    until = time.monotonic() + DEADLINE_SECONDS
    reader.seek({topic: places})
    while any(reader.reached[topic][p] == places[p] for p in places) and time.monotonic() < until:
        for record in reader.poll(0.2):
            ages.setdefault(record.partition, max(0.0, time.time() - record.timestamp / 1000))
    return ages


def reset_group(settings: Settings, topic: str, *, group: str, to: Start) -> dict[int, int]:
    """Move a group without members to other offsets, and return them; GroupActive, TopicMissing, BrokerUnreachable."""
    admin, servers = AdminClient(quiet(settings.kafka)), settings.kafka.bootstrap_servers
    with OffsetReader(settings) as reader:
        partitions = range(reader.partitions([topic])[topic])
    found = start_offsets(settings, [(topic, partition) for partition in partitions], start=to)
    _check_empty(admin, servers, group)
    wanted = [TopicPartition(*partition, offset) for partition, offset in found.items()]
    with typed_errors(servers, topic=topic):
        asked: Any = admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=DEADLINE_SECONDS
        )
        asked[group].result(DEADLINE_SECONDS + 1)
    return {partition: offset for (_, partition), offset in found.items()}


def _check_empty(admin: AdminClient, servers: str, group: str) -> None:
    with typed_errors(servers):
        asked = admin.describe_consumer_groups([group], request_timeout=DEADLINE_SECONDS)
        found = asked[group].result(DEADLINE_SECONDS + 1)
    if found.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        raise GroupActive(
            f"group {group!r} has {len(found.members)} members, so its offsets cannot be moved",
            remedy="stop every subscriber of the group, then try again",
            place=group,
        )
