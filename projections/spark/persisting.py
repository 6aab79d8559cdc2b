"""Rows that are persisted for several uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def persisted(frame: DataFrame) -> DataFrame:
    """Persist the rows of a frame from their first use on, until `unpersist`; other threads may run queries meanwhile.

    Spark compares the plan of every query with the persisted ones, and computes a plan's comparable form in the thread
    that needs it first. `from_avro` then reads its options from a map that no two threads may read at once
    (`ArrayBasedMapBuilder`: DUPLICATED_MAP_KEY). The form is computed here, before another thread can need it.
    """
    frame.semanticHash()
    return frame.persist()
