"""A group seen from outside: its lag, and how to move its offsets while it has no members."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from eventstore.delivery.source import Lag, PartitionLag
from eventstore.delivery.subscriptions import Start
from eventstore.errors import KafkaError, RecordsUnreadable
from eventstore.kafka.admin import DEADLINE_SECONDS, Cluster, OffsetReader, Offsets
from eventstore.kafka.consumer import RangeReader, stalled
from eventstore.kafka.places import start_offsets
from eventstore.settings import Settings
from eventstore.topics import retry_topic_of


def places_before_end(
    ends: Mapping[int, int], beginnings: Mapping[int, int], places: Mapping[int, int]
) -> dict[int, int]:
    """Return the next offset of each partition that is not at its end; what retention has removed waits no more."""
    stands = {p: max(places.get(p, 0), beginnings[p]) for p in ends}
    return {p: stands[p] for p, end in ends.items() if stands[p] < end}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first record of a partition that waits, and its time in milliseconds; None if it cannot be unpacked."""

    offset: int
    timestamp: int | None


def first_waiting(settings: Settings, asked: Sequence[tuple[str, Mapping[int, int]]]) -> list[dict[int, Waiting]]:
    """Return each partition's first committed record from these offsets on; none where only markers are left.

    ``asked`` are topics with the offsets of partitions. Nothing is read where no offset is given. BrokerUnreachable
    where a partition gives neither a record nor its end within 10 s.
    """
    if not any(places for _, places in asked):
        return [{} for _ in asked]
    with RangeReader(settings) as reader:
        return [_first_of(reader, topic, places) if places else {} for topic, places in asked]


def _first_of(reader: RangeReader, topic: str, places: Mapping[int, int]) -> dict[int, Waiting]:
    first: dict[int, Waiting] = {}
    until = time.monotonic() + DEADLINE_SECONDS
    reader.seek({topic: places})
    while any(p not in first and reader.reached[topic][p] == place for p, place in places.items()):
        if time.monotonic() > until:
            raise stalled(reader.reached, DEADLINE_SECONDS)
        try:
            for record in reader.poll(0.2):
                first.setdefault(record.partition, Waiting(record.offset, record.timestamp))
        except RecordsUnreadable as error:
            first.setdefault(error.partition, Waiting(error.offset, None))
    return first


def offsets_behind(settings: Settings, topic: str, places: Mapping[int, int]) -> int:
    """Return how many offsets of a topic lie from the first record behind these places on; 0 where none does.

    TopicMissing, BrokerUnreachable.
    """
    with OffsetReader(settings) as offsets:
        ends, beginnings = offsets.end_offsets([topic])[topic], offsets.beginning_offsets([topic])[topic]
    (first,) = first_waiting(settings, [(topic, places_before_end(ends, beginnings, places))])
    return sum(max(0, ends[partition] - waiting.offset) for partition, waiting in first.items())


def group_offsets(settings: Settings, topic: str, *, group: str) -> dict[int, int]:
    """Return the next offset of each partition the group has a place in; BrokerUnreachable."""
    return _places_of_groups(settings, {group: [topic]})[group][topic]


def _places_of_groups(settings: Settings, topics: Mapping[str, Sequence[str]]) -> dict[str, Offsets]:
    """Return the next offsets of groups in their topics; all groups are asked side by side, one request each."""
    named = ", ".join(sorted({one for each in topics.values() for one in each}))
    places = _all_places(settings, topics, topic=named)
    return {group: _by_topic(places[group], each) for group, each in topics.items()}


def _all_places(settings: Settings, groups: Iterable[str], *, topic: str = "") -> dict[str, list[TopicPartition]]:
    cluster = Cluster(settings)
    ask = partial(cluster.admin.list_consumer_group_offsets, request_timeout=cluster.deadline)
    asked = [ask([ConsumerGroupTopicPartitions(group)]) for group in groups]
    answers = {group: answer for one in asked for group, answer in one.items()}
    return {group: cluster.result(answer, topic=topic).topic_partitions for group, answer in answers.items()}


def _by_topic(partitions: Iterable[TopicPartition], topics: Iterable[str]) -> Offsets:
    places = list(partitions)
    return {topic: {p.partition: p.offset for p in places if p.topic == topic and p.offset >= 0} for topic in topics}


def read_topics(settings: Settings, topics: Iterable[str], *, group: str) -> list[str]:
    """Return topics and those of the group's retry topics for them that exist; BrokerUnreachable."""
    each = list(topics)
    with OffsetReader(settings) as reader:
        return each + reader.existing(retry_topic_of(topic, group) for topic in each)


def subscription_lag(settings: Settings, topics: Iterable[str], *, group: str) -> Lag:
    """Return how far a group is behind in several topics; TopicMissing, BrokerUnreachable, BrokerRefused."""
    return subscription_lags(settings, {group: topics})[group]


def subscription_lags(settings: Settings, topics: Mapping[str, Iterable[str]]) -> dict[str, Lag]:
    """Return how far groups are behind, each in its topics; the errors of `subscription_lag`.

    The topics of all groups are looked at together, so a hundred groups cost little more than one.
    """
    each = {group: list(names) for group, names in topics.items()}
    every = sorted({name for names in each.values() for name in names})
    if not every:
        return {group: Lag(()) for group in each}
    with OffsetReader(settings) as reader:
        ends, beginnings = reader.end_offsets(every), reader.beginning_offsets(every)
    places = _places_of_groups(settings, each)
    asked = [(group, name) for group, names in each.items() for name in names]
    stands = [(name, places_before_end(ends[name], beginnings[name], places[group][name])) for group, name in asked]
    lags: dict[str, list[PartitionLag]] = {group: [] for group in each}
    for (group, name), first in zip(asked, first_waiting(settings, stands), strict=True):
        lags[group].extend(_partition_lags(name, ends[name], first))
    return {group: Lag(tuple(partitions)) for group, partitions in lags.items()}


def _partition_lags(topic: str, ends: Mapping[int, int], first: Mapping[int, Waiting]) -> Iterator[PartitionLag]:
    for partition, end in sorted(ends.items()):
        record = first.get(partition, Waiting(end, None))
        age = 0.0 if record.timestamp is None else max(0.0, time.time() - record.timestamp / 1000)
        yield PartitionLag(partition, max(0, end - record.offset), age, topic)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group: its client, where it runs, and the partitions that it reads, such as `order[0]`."""

    client: str
    host: str
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """The state of a group in Kafka's words, and its members."""

    state: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group of the cluster: its state in Kafka's words, how many members it has, and its lag in what it has read."""

    name: str
    state: str
    members: int
    lag: Lag

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it has read."""
        return frozenset(partition.topic for partition in self.lag.partitions)


def group_statuses(settings: Settings) -> tuple[GroupStatus, ...]:
    """Return every consumer group of the cluster by its name. Raises BrokerUnreachable."""
    names = group_names(settings)
    if not names:
        return ()
    described, lags = _described(settings, names), subscription_lags(settings, _topics_of(settings, names))
    return tuple(GroupStatus(name, one.state.name, len(one.members), lags[name]) for name, one in described.items())


def group_names(settings: Settings) -> list[str]:
    """Return the names of the consumer groups of the cluster, sorted. Raises BrokerUnreachable."""
    cluster = Cluster(settings)
    listed = cluster.result(cluster.admin.list_consumer_groups(request_timeout=cluster.deadline))
    return sorted(group.group_id for group in listed.valid)


def require_group(settings: Settings, group: str) -> None:
    """Raise KafkaError if no member of a group has ever read from the cluster."""
    names = group_names(settings)
    if group not in names:
        near = difflib.get_close_matches(group, names, n=1)
        raise KafkaError(
            f"no group {group!r} has read from this cluster",
            remedy=f"did you mean {near[0]!r}?" if near else "list the groups: factfold subscriptions list",
            place=settings.kafka.bootstrap_servers,
            code="group-unknown",
        )


def _topics_of(settings: Settings, groups: Iterable[str]) -> dict[str, list[str]]:
    """Return the topics that exist and that each group has a place in."""
    every = {group: {place.topic for place in places} for group, places in _all_places(settings, groups).items()}
    with OffsetReader(settings) as reader:
        existing = set(reader.existing({topic for topics in every.values() for topic in topics}))
    return {group: sorted(topics & existing) for group, topics in every.items()}


@dataclass(frozen=True, slots=True)
class Move:
    """What a reset does to a partition: the group's next offset now, None without one, and afterwards."""

    partition: int
    now: int | None
    to: int


def group_standing(settings: Settings, group: str) -> GroupStanding:
    """Return the members of a group, none for an unknown group. Raises BrokerUnreachable."""
    description = _described(settings, [group])[group]
    return GroupStanding(description.state.name, tuple(_member(one) for one in description.members))


def _member(member: Any) -> Member:
    assigned = member.assignment.topic_partitions if member.assignment else []
    reads = sorted((one.topic, one.partition) for one in assigned)
    return Member(member.client_id, member.host.lstrip("/"), tuple(f"{topic}[{number}]" for topic, number in reads))


def reset_plan(settings: Settings, topic: str, *, group: str, to: Start) -> tuple[Move, ...]:
    """Return what `reset_group` would do, and change nothing; TopicMissing, BrokerUnreachable."""
    targets = _targets(settings, topic, to)
    now = group_offsets(settings, topic, group=group)
    return tuple(Move(partition, now.get(partition), offset) for partition, offset in sorted(targets.items()))


def _targets(settings: Settings, topic: str, to: Start) -> dict[int, int]:
    with OffsetReader(settings) as reader:
        partitions = range(reader.partitions([topic])[topic])
    offsets = start_offsets(settings, [(topic, partition) for partition in partitions], start=to)
    return {partition: offset for (_, partition), offset in offsets.items()}


def reset_group(settings: Settings, topic: str, *, group: str, to: Start) -> dict[int, int]:
    """Move a group without members to other offsets, and return them; KafkaError, TopicMissing, BrokerUnreachable."""
    targets = _targets(settings, topic, to)
    _check_empty(settings, group)
    moved = [TopicPartition(topic, partition, offset) for partition, offset in targets.items()]
    cluster, places = Cluster(settings), ConsumerGroupTopicPartitions(group, moved)
    asked: Any = cluster.admin.alter_consumer_group_offsets([places], request_timeout=cluster.deadline)
    cluster.result(asked[group], topic=topic)
    return targets


def _described(settings: Settings, groups: Sequence[str]) -> dict[str, Any]:
    """Return the brokers' descriptions of groups, in their order. An unknown group is DEAD."""
    cluster = Cluster(settings)
    asked = cluster.admin.describe_consumer_groups(list(groups), request_timeout=cluster.deadline)
    return {group: cluster.result(asked[group]) for group in groups}


def _check_empty(settings: Settings, group: str) -> None:
    description = _described(settings, [group])[group]
    if description.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        raise KafkaError(
            f"group {group!r} has {len(description.members)} members, and its offsets cannot be moved",
            remedy="stop every subscriber of the group, then try again",
            place=group,
            code="group-active",
        )
