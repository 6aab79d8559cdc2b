"""Offsets of topics, the ranges between them, and how many records a batch reads.

A batch reads as many records as are applied in about the time it should take. Nothing is handed on before it is asked
for, so this is the back pressure too: while the store or Spark is slow batches become small, what waits stays in the
topics, and memory holds one batch of bounded size at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from projections.errors import InvalidDefinition, OffsetsLost

Offsets = Mapping[str, Mapping[int, int]]
# One batch says little: a pause of the garbage collector must not cost the next ten, nor a quick one flood them.
_SHRINKS_TO: Final = 1 / 4
_GROWS_TO: Final = 2.0
# Within a quarter of the target the size stays: a size that moves all the time makes batches that cannot be compared.
_NEAR: Final = 1.25
# A batch of less than half the size says nothing about whole ones: it was all there was.
_TELLING: Final = 1 / 2


@dataclass(frozen=True)
class OffsetRange:
    """The records to read: from ``start`` inclusive to ``end`` exclusive, by topic and partition."""

    start: Offsets
    end: Offsets

    @property
    def records(self) -> int:
        """How many offsets it spans; offsets without a record count too, so there are at most this many records."""
        return sum(o - self.start[t][p] for t, ends in self.end.items() for p, o in ends.items())

    def changed_topics(self) -> list[str]:
        """The topics with anything to read."""
        return [t for t, ends in self.end.items() if any(o > self.start[t][p] for p, o in ends.items())]

    def only(self, topic: str) -> OffsetRange:
        """The range of one topic."""
        return OffsetRange({topic: self.start[topic]}, {topic: self.end[topic]})

    def without(self, topic: str) -> OffsetRange:
        """The range of the other topics."""
        start, end = ({t: o for t, o in side.items() if t != topic} for side in (self.start, self.end))
        return OffsetRange(start, end)

    def first_of_each(self) -> OffsetRange:
        """One offset of each partition that has anything to read."""
        start = self.not_empty().start
        return OffsetRange(start, {t: {p: o + 1 for p, o in parts.items()} for t, parts in start.items()})

    def not_empty(self) -> OffsetRange:
        """The range without the partitions that have nothing to read."""
        moved = {t: {p: o for p, o in ends.items() if o > self.start[t][p]} for t, ends in self.end.items()}
        moved = {t: ends for t, ends in moved.items() if ends}
        return OffsetRange({t: {p: self.start[t][p] for p in ends} for t, ends in moved.items()}, moved)


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


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The number of records in the next batch, adapted so that batches take a target time.

    Attributes:
        records: The size of the first batch.
        target: The seconds that a batch is to take.
        least: The smallest size.
        most: The greatest size.

    Raises:
        InvalidDefinition: The bounds contradict each other.

    Examples:
        >>> options = RunnerOptions(batch=BatchSize(target=0.5))
        >>> options.batch.after(20_000, seconds=2.0).records
        5000
    """

    records: int = 20_000
    target: float = 2.0
    least: int = 500
    most: int = 100_000

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.records <= self.most or self.target <= 0:
            raise InvalidDefinition(
                f"a batch cannot have {self.records} records, {self.least} to {self.most}, in {self.target} s",
                remedy="give 1 <= least <= records <= most, and a target above zero",
            )

    def after(self, records: int, *, seconds: float) -> BatchSize:
        """Return the size of the next batch, after a batch of so many records took so many seconds."""
        if seconds > self.target * _NEAR:
            in_time = min(records, self.records) * self.target / seconds
            return self._of(max(in_time, self.records * _SHRINKS_TO))
        if seconds * _NEAR < self.target and records >= self.records * _TELLING:
            return self._of(self.records * (min(_GROWS_TO, self.target / seconds) if seconds else _GROWS_TO))
        return self

    def _of(self, records: float) -> BatchSize:
        return dataclasses.replace(self, records=max(self.least, min(self.most, int(records))))


def started(stored: Offsets, beginning: Offsets) -> Offsets:
    """Progress for every partition; one whose needed records are missing is refused."""
    for topic, offsets in beginning.items():
        for partition, first in offsets.items():
            if stored.get(topic, {}).get(partition, 0) < first:
                raise progress_lost(topic, partition, f"records before offset {first} are no longer in the topic")
    return filled(stored, beginning)
