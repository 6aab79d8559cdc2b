"""A Delta store by itself, with a Spark of its own: for a look at its ledgers, without a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.session import open_session


@contextmanager
def opened_lakehouse(url: str, *, jars: Sequence[Path]) -> Iterator[DeltaTableStore]:
    """The store at a URL; Spark starts, and stops at the end. ``jars`` are those of Delta Lake."""
    spark = open_session(jars, memory="1g")
    try:
        yield DeltaTableStore(spark, url)
    finally:
        spark.stop()
