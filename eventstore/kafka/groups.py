"""A group seen from outside: how far it is behind, and its offsets moved while nobody is in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from eventstore.delivery.source import Lag, PartitionLag
from eventstore.errors import GroupActive
from eventstore.kafka.admin import DEADLINE_SECONDS, OffsetReader, quiet, typed_errors
from eventstore.kafka.consumer import RangeReader
from eventstore.kafka.places import start_offsets
from eventstore.settings import Settings
from eventstore.subscriptions import Start
from eventstore.topics import retry_topic_of


def group_offsets(settings: Settings, topic: str, *, group: str) -> dict[int, int]:
    """Return the next offset of each partition the group has a place in; BrokerUnreachable."""
    admin, servers = AdminClient(quiet(settings.kafka)), settings.kafka.bootstrap_servers
    with typed_errors(servers, topic=topic):
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=DEADLINE_SECONDS
        )
        found = asked[group].result(DEADLINE_SECONDS + 1).topic_partitions
    return {p.partition: p.offset for p in found if p.topic == topic and p.offset >= 0}


def group_lag(settings: Settings, topic: str, *, group: str) -> Lag:
    """Return how far a group is behind the committed records of a topic; TopicMissing, BrokerUnreachable.

    A partition without a place counts from its beginning.
    """
    with OffsetReader(settings) as reader:
        ends, beginnings = reader.end_offsets([topic])[topic], reader.beginning_offsets([topic])[topic]
    stands = beginnings | group_offsets(settings, topic, group=group)
    waiting = {p: max(stands[p], beginnings[p]) for p, end in ends.items() if stands[p] < end}
    ages = _ages(settings, topic, waiting) if waiting else {}
    return Lag(tuple(PartitionLag(p, ends[p] - waiting.get(p, ends[p]), ages.get(p, 0.0), topic) for p in sorted(ends)))


def read_topics(settings: Settings, topics: Iterable[str], *, group: str) -> list[str]:
    """Return topics and those of the group's retry topics for them that exist; BrokerUnreachable."""
    each = list(topics)
    with OffsetReader(settings) as reader:
        return each + reader.existing(retry_topic_of(topic, group) for topic in each)


def subscription_lag(settings: Settings, topics: Iterable[str], *, group: str) -> Lag:
    """Return how far a group is behind in several topics; the errors of `group_lag`."""
    return Lag(tuple(one for topic in topics for one in group_lag(settings, topic, group=group).partitions))


def _ages(settings: Settings, topic: str, waiting: Mapping[int, int]) -> dict[int, float]:
    """Return the age of the record at each offset; none where only the marker of a transaction is left there."""
    ages: dict[int, float] = {}
    until = time.monotonic() + DEADLINE_SECONDS
    with RangeReader(settings) as reader:
        reader.seek({topic: waiting})
        while any(reader.reached[topic][p] == waiting[p] for p in waiting) and time.monotonic() < until:
            for record in reader.poll(0.2):
                ages.setdefault(record.partition, max(0.0, time.time() - record.timestamp / 1000))
    return ages


def reset_group(settings: Settings, topic: str, *, group: str, to: Start) -> dict[int, int]:
    """Move a group without members to other offsets, and return them; GroupActive, TopicMissing, BrokerUnreachable."""
    admin, servers = AdminClient(quiet(settings.kafka)), settings.kafka.bootstrap_servers
    with OffsetReader(settings) as reader:
        partitions = range(reader.partitions([topic])[topic])
    offsets = start_offsets(settings, topic, partitions, start=to)
    _check_empty(admin, servers, group)
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    with typed_errors(servers, topic=topic):
        asked: Any = admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=DEADLINE_SECONDS
        )
        asked[group].result(DEADLINE_SECONDS + 1)
    return offsets


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
