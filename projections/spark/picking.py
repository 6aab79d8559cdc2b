"""Rows picked from a computed frame: by values of columns, by keys, by a condition, in the order of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from projections.declaring.columns import ColumnType
from projections.spark.exchange import few_rows, in_table_order


def with_values(frame: DataFrame, values: Mapping[str, Any], *, most: int) -> list[dict[str, Any]]:
    """The rows with these values, null equal to null, as dictionaries."""
    for column, value in values.items():
        frame = frame.where(F.col(column).eqNullSafe(F.lit(value)))
    return [row.asDict() for row in frame.limit(most).collect()]


def with_keys(frame: DataFrame, keys: pa.Table, columns: Mapping[str, ColumnType], small: SparkSession) -> DataFrame:
    """The rows whose key is among a few ``keys``, which come as the store has them."""
    typed = in_table_order(few_rows(small, keys), columns)
    same = [frame[column].eqNullSafe(typed[column]) for column in columns]
    return frame.join(F.broadcast(typed), same, "left_semi")


def in_order(frame: DataFrame, key: Sequence[str], *, most: int | None) -> pa.Table:
    """The rows in the order of a key, the first ones alone if ``most`` says how many."""
    ordered = frame.orderBy(*map(F.col, key))
    return (ordered if most is None else ordered.limit(most)).toArrow()
