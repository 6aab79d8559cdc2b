"""Whether a reader that stood still has missed deletions: a compacted topic keeps a tombstone for some days only.

What a topic has compacted away is gone without a gap that could be told from others: an older row stays with whoever
had applied it, and no offset says so. So time decides, as the topic's own settings give it (KIP-534).
"""

from __future__ import annotations

from collections.abc import Sequence

from projections.errors import OffsetsLost
from projections.logs.port import Offsets, OpenLog


def require_deletions(log: OpenLog, progress: Offsets, ends: Offsets, *, topics: Sequence[str]) -> None:
    """Raise OffsetsLost where records wait that are older than deletions are kept: some may have gone unread."""
    for topic, parts in log.deletions_complete_from(topics).items():
        for partition, kept in parts.items():
            if 0 < progress.get(topic, {}).get(partition, 0) < min(kept, ends[topic][partition]):
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
