"""Which ranges of offsets can be read: where batches may end, what is missing in them, and what cannot be unpacked.

A batch ends anywhere, or where transactions of a source do.

A compacted tombstone leaves a gap like any other: a reader that had applied the older row still has it, and no offset
shows that. Time decides, as the topic's own settings give it (KIP-534).

A producer compresses records by the batch, and a client that cannot unpack one can read none of its records. So all of
them are set aside, and the range is read in pieces that leave them out: no filter can leave out what a read fails at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import structlog

from projections.errors import OffsetsLost, RecordNotUnpacked
from projections.faults import NOT_UNPACKED
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import OpenLog, RecordLog, SourceBoundaries
from projections.logs.set_aside import FAULTS, SetAside, require_bearable

if TYPE_CHECKING:
    from projections.declaring.group import ProjectionGroup


# As many records as a small batch has, which this process holds anyway.
_STEP: Final = 10_000

_log = structlog.get_logger()


@dataclass(frozen=True)
class Boundaries:
    """Those of every source whose transactions a group keeps whole."""

    sources: Sequence[SourceBoundaries] = ()

    def within(self, start: Offsets, ends: Offsets, *, most: int) -> tuple[Offsets, Offsets]:
        """The ends of whole transactions, and those of the other topics, which may be cut anywhere."""
        whole: dict[str, dict[int, int]] = {}
        for source in self.sources:
            begun, waiting = ({t: dict(side[t]) for t in source.topics} for side in (start, ends))
            whole |= {t: dict(parts) for t, parts in source.whole(begun, waiting, most=most).items()}
        return whole, {topic: parts for topic, parts in ends.items() if topic not in whole}

    def latest(self, beginning: Offsets, ends: Offsets) -> Offsets:
        """The ends as of now, those of the sources at the end of a transaction."""
        result = {t: dict(parts) for t, parts in ends.items()}
        for source in self.sources:
            begun = {t: dict(beginning[t]) for t in source.topics}
            result |= {t: dict(parts) for t, parts in source.latest(begun).items()}
        return result


@contextmanager
def open_boundaries(log: RecordLog, group: ProjectionGroup) -> Iterator[Boundaries]:
    """Connect to the transaction topics of a group, if it names any; InvalidDefinition for a log without."""
    with ExitStack() as opened:
        sources = [log.transactions(prefix, group.captured_by(prefix)) for prefix in group.transactions]
        for source in sources:
            opened.callback(source.close)
        yield Boundaries(sources)


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


def around(offsets: OffsetRange, aside: SetAside) -> list[OffsetRange]:
    """A range in pieces, one behind the other, without the batches that are set aside as not unpacked.

    There is at least one piece, and each names every partition of the range.
    """
    holes = aside.stretches(NOT_UNPACKED)
    cuts = {
        (topic, partition): list(_outside(offsets.start[topic][partition], end, holes.get((topic, partition), ())))
        for topic, parts in offsets.end.items()
        for partition, end in parts.items()
    }
    return [_piece(offsets, cuts, number) for number in range(max(map(len, cuts.values()), default=1))]


def not_unpacked_in(log: OpenLog, offsets: OffsetRange) -> SetAside:
    """All records of a range that are in batches which its client cannot unpack; ProjectionError.

    Every partition is read once, in steps, whatever client failed at it before: Spark's does not say where.
    """
    aside = SetAside.nothing()
    for error in _refused(log, offsets):
        aside |= _records(error, offsets)
        require_bearable(len(aside))
    return aside


def require_unpacked(log: OpenLog, offsets: OffsetRange) -> None:
    """Raise the RecordNotUnpacked of the first batch of a range that its client cannot unpack."""
    for error in _refused(log, offsets):
        raise error


def still_not_unpacked(log: OpenLog, noted: SetAside, offsets: OffsetRange) -> SetAside:
    """Of what another generation has noted as not unpacked within a range, what this client cannot unpack either."""
    aside = SetAside.nothing()
    for (topic, partition), stretches in noted.stretches(NOT_UNPACKED).items():
        begin, end = (side.get(topic, {}).get(partition, 0) for side in (offsets.start, offsets.end))
        for first, after in stretches:
            if begin < after and first < end:
                place = ({topic: {partition: max(first, begin)}}, {topic: {partition: min(after, end)}})
                aside |= not_unpacked_in(log, OffsetRange(*place))
    return aside


def _refused(log: OpenLog, offsets: OffsetRange) -> Iterator[RecordNotUnpacked]:
    for topic, parts in offsets.end.items():
        for partition, end in parts.items():
            yield from _refused_of(log, topic, partition, offsets.start[topic][partition], end)


def _refused_of(log: OpenLog, topic: str, partition: int, first: int, end: int) -> Iterator[RecordNotUnpacked]:
    while first < end:
        after = min(first + _STEP, end)
        try:
            log.fetch(OffsetRange({topic: {partition: first}}, {topic: {partition: after}}))
        except RecordNotUnpacked as error:
            if error.end is None:
                raise
            yield error
            after = max(error.end, first + 1)
        first = after


def _records(error: RecordNotUnpacked, offsets: OffsetRange) -> SetAside:
    """The records of a batch that are in a range; the log says it once for all of them."""
    topic, partition, batch = error.topic, error.partition, error.offsets
    first = max(error.first or 0, offsets.start[topic][partition])
    after = min(error.end or 0, offsets.end[topic][partition])
    require_bearable(after - first)
    _log.warning("a batch cannot be unpacked", topic=topic, partition=partition, offsets=batch, cause=error.message)
    count = after - first
    columns = {"topic": [topic] * count, "partition": [partition] * count, "offset": range(first, after),
               "kind": [NOT_UNPACKED] * count, "detail": [batch] * count}  # fmt: skip
    return SetAside(pa.table({name: pa.array(columns[name], FAULTS.field(name).type) for name in FAULTS.names}))


def _piece(offsets: OffsetRange, cuts: Mapping[tuple[str, int], Sequence[tuple[int, int]]], number: int) -> OffsetRange:
    """The piece of that number of each partition; nothing of one that has fewer."""

    def side(which: int) -> Offsets:
        return {
            topic: {p: (cuts[topic, p][number:] or [(end, end)])[0][which] for p, end in parts.items()}
            for topic, parts in offsets.end.items()
        }

    return OffsetRange(side(0), side(1))


def _outside(first: int, end: int, holes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for begin, after in holes:
        if begin < end and after > first:
            yield first, max(first, begin)
            first = min(after, end)
    yield first, end
