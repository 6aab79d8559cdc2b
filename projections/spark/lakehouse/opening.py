"""A Delta store by itself, with a Spark of its own: for a look at its ledgers, without a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.session import end_session, open_session
from projections.spark_settings import SparkSettings


@contextmanager
def opened_lakehouse(url: str, *, jars: Sequence[Path]) -> Iterator[DeltaTableStore]:
    """The store at a URL; Spark starts as the environment's variables have it, and stops at the end.

    ``jars`` are those of Delta Lake.
    """
    chosen = SparkSettings()
    spark = open_session(jars, master=chosen.master, memory="1g", config=chosen.config)
    try:
        yield DeltaTableStore(spark, url)
    finally:
        end_session(spark)
