"""Ranges of offsets from where a run stands: all that waits, and as much of it as one batch takes."""

from __future__ import annotations

from collections.abc import Mapping

from projections.errors import OffsetsLost
from projections.logs.offsets import OffsetRange, Offsets


def filled(stored: Offsets, required: Offsets) -> dict[str, dict[int, int]]:
    """Offsets for every required partition: one that the topic has grown since begins at 0."""
    return {t: {p: stored.get(t, {}).get(p, 0) for p in offsets} for t, offsets in required.items()}


def waiting(progress: Offsets, ends: Offsets) -> OffsetRange:
    """Everything from progress to the ends; a new partition begins at 0, one that ends before progress is refused."""
    start = filled(progress, ends)
    for topic, parts in ends.items():
        for partition, end in parts.items():
            if end < start[topic][partition]:
                applied = start[topic][partition]
                cause = f"the topic ends at offset {end}, and {applied} were applied: it was created again"
                raise progress_lost(topic, partition, cause)
    return OffsetRange(start, ends)


def bounded(start: Offsets, ends: Offsets, *, max_records: int) -> OffsetRange:
    """At most ``max_records`` offsets from ``start`` on, shared among partitions by what each has waiting."""
    everything = waiting(start, ends)
    if everything.records <= max_records:
        return everything
    share = max_records / everything.records

    def upto(first: int, last: int) -> int:
        return first + min(last - first, max(1, int((last - first) * share)))

    begun = everything.start
    end = {t: {p: upto(begun[t][p], last) for p, last in parts.items()} for t, parts in ends.items()}
    return OffsetRange(begun, end)


def reached(progress: Offsets, goal: Mapping[str, Mapping[int, int]]) -> bool:
    """Whether progress is at or beyond the goal in every partition."""
    return all(progress.get(t, {}).get(p, 0) >= o for t, parts in goal.items() for p, o in parts.items())


def progress_lost(topic: str, partition: int, cause: str) -> OffsetsLost:
    """The error of a run that cannot go on from where it stands."""
    return OffsetsLost(
        cause,
        remedy="rebuild the projection. Keep a topic longer than a run may be offline, and do not create it again",
        place=f"topic {topic}, partition {partition}",
    )
