"""Offsets of topics, and the ranges between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Offsets = Mapping[str, Mapping[int, int]]


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
