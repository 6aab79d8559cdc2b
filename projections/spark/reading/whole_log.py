"""The whole log of a group: from the beginning of its topics to their present ends, and what it takes to read it."""

from __future__ import annotations

from projections.connections import Connections
from projections.declaring.group import ProjectionGroup
from projections.errors import OffsetsLost, ProjectionError, keys_missing
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.ranges import open_boundaries


def whole_log(environment: Connections, group: ProjectionGroup, *, served: Offsets | None = None) -> OffsetRange:
    """Every committed record of the group's topics; with ``transactions``, up to the last that is known to have ended.

    Raises TopicMissing, BrokerUnreachable, OffsetsLost or KeysMissing. Raises ProjectionError where that is before what
    is ``served``, or a topic loses versions.
    """
    require_inputs(environment, group)
    with environment.log.open() as reader:
        topics = list(group.inputs)
        beginning, ends = reader.beginning_offsets(topics), reader.end_offsets(topics)
        if group.transactions:
            with open_boundaries(environment.log, group) as boundaries:
                whole = boundaries.latest(beginning, ends)
            require_served(served or {}, whole, ends, group=group.name)
            ends = whole
        return from_the_beginning(beginning, ends)


def require_served(served: Offsets, whole: Offsets, ends: Offsets, *, group: str) -> None:
    """Raise ProjectionError where whole transactions end before what is served, in a topic that still holds it.

    A topic that ends before was recreated.
    """
    for topic, parts in whole.items():
        for partition, end in parts.items():
            if end < served.get(topic, {}).get(partition, 0) <= ends[topic][partition]:
                raise ProjectionError(
                    f"group {group!r} serves {served[topic][partition]} offsets, and the source's transactions "
                    f"are complete only up to {end}",
                    remedy="wait for the open transaction to end. If its marks were removed or switched off, wait for "
                    "the next one, or omit ProjectionGroup(transactions=…)",
                    place=f"topic {topic}, partition {partition}",
                    code="end-not-known",
                )


def require_inputs(environment: Connections, group: ProjectionGroup) -> None:
    """Raise KeysMissing if personal columns cannot be opened, ProjectionError if a topic of versions is compacted.

    A later rebuild would find fewer versions.
    """
    if group.personal and environment.keys is None:
        raise keys_missing(place=f"projection group {group.name}")
    for topic, policy in environment.log.cleanup_policies(group.history_topics).items():
        if "compact" in policy:
            raise ProjectionError(
                f"versions are read from the topic, and its cleanup.policy={policy} deletes older changes",
                remedy="capture the table with PostgresSource(history=(…)), or set cleanup.policy=delete and"
                " retention.ms=-1 on the topic before it is compacted",
                place=f"topic {topic}",
                code="history-not-retained",
            )


def from_the_beginning(beginning: Offsets, ends: Offsets) -> OffsetRange:
    """The range up to the given ends, when the topics still begin where they began; else OffsetsLost.

    Compaction leaves a topic's beginning at 0; only retention by time or size, or a deletion of records, moves it.
    """
    for topic, offsets in beginning.items():
        for partition, first in offsets.items():
            if first > 0:
                raise OffsetsLost(
                    f"the topic no longer begins at its beginning: {first} offsets have been removed",
                    remedy="publish it again. Event and changelog topics are compacted and retained without limit",
                    place=f"topic {topic}, partition {partition}",
                )
    return OffsetRange(beginning, ends)
