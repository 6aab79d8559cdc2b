"""Where replayed records go: back to their topic, or to the retry topic that one group alone reads."""

from __future__ import annotations

from collections.abc import Callable

from eventstore.deadletters.records import SentRecord, header, origin_partition, own_headers
from eventstore.errors import ReplayRefused
from eventstore.kafka.admin import OffsetReader, cleanup_policies, ensure_topics
from eventstore.kafka.groups import group_offsets
from eventstore.settings import Settings
from eventstore.topics import TopicRecord, dead_letter_topic, partition_of, retry_topic_of

Road = Callable[[TopicRecord], SentRecord]
"""Returns what to publish for a letter's record; ReplayRefused where it cannot go there."""


def to_topic(settings: Settings, topic: str) -> Road:
    """Return the road back to a topic, in the partition that a record came from; ReplayRefused, TopicMissing.

    A compacted topic is refused: compaction would delete the record's first copy and leave the one behind newer events.
    """
    if "compact" in cleanup_policies(settings, [topic])[topic].split(","):
        raise ReplayRefused(
            f"{topic!r} is compacted: a repeated event would stay behind newer events of its stream",
            remedy="replay to the group (--to group), letters of branches to their branch (--branches MODULE:NAME), "
            "and rebuild projections (factfold projections rebuild)",
            place=topic,
        )
    with OffsetReader(settings) as offsets:
        count = offsets.partitions([topic])[topic]

    def sent(record: TopicRecord) -> SentRecord:
        return _sent(record, topic, _partition(record, topic, count))

    return sent


def to_group(settings: Settings, topic: str, group: str) -> Road:
    """Return the road to the retry topic of a group, made if it is missing; ReplayRefused without such a group."""
    if not group_offsets(settings, topic, group=group):
        raise ReplayRefused(
            f"group {group!r} has no place in topic {topic!r}: no subscription would read its retry topic",
            remedy="start the group's subscriber first; rebuild projections instead (factfold projections rebuild)",
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
    """The partition that it came from; one that died in the retry topic goes by its stream, as its writer chose."""
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
