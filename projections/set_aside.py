"""Records that a run does not apply: which, and what is wrong with each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from projections.faults import Fault

FAULTS: Final = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("kind", pa.string()),
    ("detail", pa.string()),
])  # fmt: skip
_PLACE: Final = ("topic", "partition", "offset")
# Kafka counts partitions in 32 bits and offsets in 64; no topic gets near 2^44 offsets or 2^19 partitions.
_OFFSET_BITS: Final = 44


@dataclass(frozen=True)
class SetAside:
    """Faults by record, each record once."""

    faults: pa.Table

    @staticmethod
    def nothing() -> SetAside:
        """No record."""
        return SetAside(FAULTS.empty_table())

    @staticmethod
    def of(found: pa.Table) -> SetAside:
        """The faults found, of a record with several the first."""
        first = found.group_by(list(_PLACE), use_threads=False).aggregate([("kind", "first"), ("detail", "first")])
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

    def topics(self) -> list[str]:
        """The topics with any."""
        return list(pc.unique(self.faults["topic"]).to_pylist())

    def counts(self) -> Mapping[str, int]:
        """How many of each kind."""
        return Counter(self.faults["kind"].to_pylist())

    def left_out_of(self, records: pa.Table) -> pa.Table:
        """Records of one topic without those set aside."""
        ours = self.of_topic(records["topic"][0].as_py()) if records.num_rows else SetAside.nothing()
        return (
            records.filter(pc.invert(pc.is_in(_places(records), value_set=_places(ours.faults)))) if ours else records
        )


def _places(records: pa.Table) -> pa.ChunkedArray:
    partition = pc.shift_left(records["partition"].cast(pa.int64()), _OFFSET_BITS)
    return pc.bit_wise_or(partition, records["offset"])
