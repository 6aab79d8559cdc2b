"""Whether a reader that stood still has missed deletions: a compacted topic keeps a tombstone for some days only.

A compacted tombstone leaves a gap like any other: a reader that had applied the older row still has it, and no offset
shows that. Time decides, as the topic's own settings give it (KIP-534).
"""

from __future__ import annotations

from collections.abc import Sequence

from projections.errors import OffsetsLost
from projections.logs.offsets import Offsets
from projections.logs.port import OpenLog


def require_deletions(log: OpenLog, progress: Offsets, ends: Offsets, *, topics: Sequence[str]) -> None:
    """Raise OffsetsLost if records wait that are older than the retention of deletions: some may be missing."""
    for topic, parts in log.deletions_complete_from(topics).items():
        for partition, complete in parts.items():
            if 0 < progress.get(topic, {}).get(partition, 0) < min(complete, ends[topic][partition]):
                raise deletions_lost(
                    topic,
                    partition,
                    remedy="rebuild the projection. Let a run be offline for less than the topic's delete.retention.ms "
                    "and min.compaction.lag.ms together",
                )


def deletions_lost(topic: str, partition: int, *, remedy: str) -> OffsetsLost:
    """The error of a reader that stood still for longer than its topic keeps deletions."""
    return OffsetsLost(
        "the next records are older than the topic's deletions: compaction may have removed tombstones unread",
        remedy=remedy,
        place=f"topic {topic}, partition {partition}",
    )
