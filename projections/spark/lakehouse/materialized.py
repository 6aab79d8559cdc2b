"""Rows that a batch computes once and uses again, and how they are looked up in larger tables."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from projections.spark.exchange import DRIVER_ROWS, are_few, few_rows
from projections.spark.gathering import is_for_many

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Materialized:
    """Rows as they were when they were computed, and their number; few rows are in the driver too."""

    rows: DataFrame
    count: int
    few: pa.Table | None = None

    def count_of(self, flag: str) -> int:
        """How many of them a column of truth values marks."""
        if self.few is None:
            return self.rows.where(flag).count()
        return int(pc.sum(self.few[flag]).as_py() or 0)


def materialized(frame: DataFrame) -> Materialized:
    """Compute rows: few come to the driver, from where Spark sends them to every task; many stay with the executors.

    They are not computed again, even if their tables have new commits meanwhile. If many are expected, the check
    whether they are few computes them all. Otherwise that would cost more than all the rest.
    """
    are_many = is_for_many(frame.sparkSession)
    rows = frame.localCheckpoint(eager=False) if are_many else frame
    few = rows.limit(DRIVER_ROWS + 1).toArrow()
    if are_few(few.num_rows):
        return Materialized(few_rows(frame.sparkSession, few), int(few.num_rows), few)
    rows = rows if are_many else frame.localCheckpoint()
    return Materialized(rows, rows.count())


def within(
    rows: DataFrame, columns: Sequence[str], keys: DataFrame, *, nullable: bool = False, how: str = "left_semi"
) -> DataFrame:
    """The rows whose columns hold one of the keys, or with ``left_anti`` none; keys are in the order of the columns.

    ``nullable``, where null is a value of its own among them.
    """
    from pyspark.sql import functions as F

    named = keys.toDF(*(f"_key_{number}" for number in range(len(columns))))
    pairs = [(F.col(column), F.col(f"_key_{number}")) for number, column in enumerate(columns)]
    return rows.join(named, all_of([a.eqNullSafe(b) if nullable else a == b for a, b in pairs]), how)


def all_of(conditions: Sequence[Column]) -> Column:
    """Whether every one of some conditions holds."""
    return functools.reduce(operator.and_, conditions)


def any_of(conditions: Sequence[Column]) -> Column:
    """Whether any of some conditions holds."""
    return functools.reduce(operator.or_, conditions)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns, in their order."""
    return functools.reduce(lambda one, other: one.union(other), frames)
