"""Rows that are kept for several uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def persisted(frame: DataFrame) -> DataFrame:
    """Keep the rows of a frame from their first use on, until `unpersist`; queries of other threads may run beside.

    Spark compares the plan of every query with those that are kept, and works a plan's comparable form out in whichever
    thread asks for it first. `from_avro` reads its options while that is done, from a map that no two threads may read
    at once (`ArrayBasedMapBuilder`: DUPLICATED_MAP_KEY): so it is done here, before anyone can ask.
    """
    frame.semanticHash()
    return frame.persist()
