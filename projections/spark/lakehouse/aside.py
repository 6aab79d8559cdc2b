"""The records that a run has set aside, in a table of its generation that is made with the first of them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from eventstore.topics import DEAD_LETTER_MESSAGE_LENGTH
from projections.logs.offsets import Offsets
from projections.logs.set_aside import FAULTS, SetAside
from projections.spark.exchange import few_rows
from projections.spark.lakehouse.versioned import VersionedTable

_PLACE: Final = ("topic", "partition", "offset")


def merge_set_aside(table: VersionedTable, aside: SetAside, *, at: int | None) -> int:
    """Note records with their causes in a version of the table, or in none yet; returns the new version."""
    messages = [fault.error.message[:DEAD_LETTER_MESSAGE_LENGTH] for fault in aside]
    faults = aside.faults.set_column(FAULTS.names.index("detail"), "detail", pa.array(messages, pa.string()))
    return table.put(few_rows(table.spark, faults), _PLACE, at=at)


def read_set_aside(table: VersionedTable, *, at: int | None, before: Offsets) -> SetAside:
    """The records noted in a version below the given offsets."""
    if at is None:
        return SetAside.nothing()
    faults = table.rows(at).toArrow().select(FAULTS.names).cast(FAULTS)
    places = zip(*(faults[name].to_pylist() for name in _PLACE), strict=True)
    known = [before.get(topic, {}).get(partition, 0) > offset for topic, partition, offset in places]
    return SetAside(faults.filter(pc.equal(pa.array(known, pa.bool_()), True)))
