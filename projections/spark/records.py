"""The raw records of a live batch, by topic: read by the driver when few, by the executors when many."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from projections.environment import Environment
from projections.log import OffsetRange, OpenLog
from projections.spark.exchange import are_few

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows: TypeAlias = "pa.Table | DataFrame"


def read_records(
    environment: Environment, log: OpenLog, offsets: OffsetRange, *, timed: Collection[str] = ()
) -> Mapping[str, Rows]:
    """The committed records of the range, for each topic that has any offsets in it.

    Those of the topics in ``timed`` come with the time of their event (``ce_time``).
    """
    if not are_few(offsets.records):
        return {
            t: environment.log.scan(environment.spark, offsets.only(t), timed=t in timed)
            for t in offsets.changed_topics()
        }
    found = log.fetch(offsets, timed=bool(timed))
    return {t: found.filter(pc.equal(found["topic"], t)) for t in pc.unique(found["topic"]).to_pylist()}
