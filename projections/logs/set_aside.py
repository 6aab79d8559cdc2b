"""Records that a run does not apply: which, and what is wrong with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from projections.errors import ProjectionError
from projections.faults import Fault

if TYPE_CHECKING:
    from projections.logs.offsets import OffsetRange, Offsets

FAULTS: Final = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("kind", pa.string()),
    ("detail", pa.string()),
])  # fmt: skip
_PLACE: Final = ["topic", "partition", "offset"]
# Kafka counts partitions in 32 bits and offsets in 64; no topic gets near 2^44 offsets or 2^19 partitions.
_OFFSET_BITS: Final = 44
# Their places are held by this process and sent to each task: a hundred megabytes. A log with more has another fault.
MOST_BAD: Final = 1_000_000


def require_bearable(count: int) -> None:
    """Raise ProjectionError for more bad records, or streams, than are noted."""
    if count > MOST_BAD:
        raise ProjectionError(
            f"more than {MOST_BAD:,} records or streams are bad: that is no exception",
            remedy="leave out bad_records, and the first of them is shown with its cause. Mend what wrote them",
            code="too-many-bad-records",
        )


@dataclass(frozen=True)
class SetAside:
    """Faults by record, each record once."""

    faults: pa.Table

    @staticmethod
    def nothing() -> SetAside:
        """No record."""
        return SetAside(FAULTS.empty_table())

    @staticmethod
    def of(faults: pa.Table) -> SetAside:
        """The given faults, of a record with several the first."""
        first = faults.group_by(_PLACE, use_threads=False).aggregate([("kind", "first"), ("detail", "first")])
        return SetAside(first.rename_columns(FAULTS.names).cast(FAULTS))

    def __len__(self) -> int:
        return int(self.faults.num_rows)

    def __iter__(self) -> Iterator[Fault]:
        columns = (self.faults[name].to_pylist() for name in FAULTS.names)
        rows = zip(*columns, strict=True)
        return (Fault(topic, partition, offset, kind, detail or "") for topic, partition, offset, kind, detail in rows)

    def __or__(self, other: SetAside) -> SetAside:
        return SetAside.of(pa.concat_tables([self.faults, other.faults]))

    def of_topic(self, topic: str) -> SetAside:
        """Those of one topic."""
        return SetAside(self.faults.filter(pc.equal(self.faults["topic"], topic)))

    def of_kind(self, kind: str) -> SetAside:
        """Those of one kind."""
        return SetAside(self.faults.filter(pc.equal(self.faults["kind"], kind)))

    def but(self, kind: str) -> SetAside:
        """Those of all other kinds."""
        return SetAside(self.faults.filter(pc.not_equal(self.faults["kind"], kind)))

    def topics(self) -> list[str]:
        """The topics with any."""
        return list(pc.unique(self.faults["topic"]).to_pylist())

    def counts(self) -> Mapping[str, int]:
        """How many of each kind."""
        return Counter(self.faults["kind"].to_pylist())

    def stretches(self, kind: str) -> Mapping[tuple[str, int], list[tuple[int, int]]]:
        """Where those of one kind are, by topic and partition: first offsets and the ones after, in order."""
        by_partition: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for topic, partition, offset in sorted(fault[:3] for fault in self if fault.kind == kind):
            parts = by_partition.setdefault((topic, partition), [])
            if parts and parts[-1][1] == offset:
                parts[-1] = (parts[-1][0], offset + 1)
            else:
                parts.append((offset, offset + 1))
        return by_partition

    def within(self, start: Offsets, end: Offsets) -> SetAside:
        """Those at offsets from ``start`` up to ``end``, by topic and partition."""

        def is_within(fault: Fault) -> bool:
            first, after = (side.get(fault.topic, {}).get(fault.partition, 0) for side in (start, end))
            return first <= fault.offset < after

        return SetAside(self.faults.filter(pa.array(map(is_within, self), pa.bool_())))

    def within_range(self, offsets: OffsetRange) -> SetAside:
        """Those of a range."""
        return self.within(offsets.start, offsets.end)

    def left_out_of(self, records: pa.Table) -> pa.Table:
        """Records of one topic without those set aside."""
        ours = self.of_topic(records["topic"][0].as_py()) if records.num_rows else SetAside.nothing()
        return (
            records.filter(pc.invert(pc.is_in(_places(records), value_set=_places(ours.faults)))) if ours else records
        )


def _places(records: pa.Table) -> pa.ChunkedArray:
    partition = pc.shift_left(records["partition"].cast(pa.int64()), _OFFSET_BITS)
    return pc.bit_wise_or(partition, records["offset"])
