"""The records of a view topic to rows, inside the JVM: JSON as `tablestore.json_rows` writes it, the last of each key.

Kafka's offset is a row's position: all records of a key are in one partition, in the order of the view's commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from projections.columns import ColumnType
from projections.spark.failures import FAULT, fault, refuse_fault
from projections.spark.semantic_types import of_text
from projections.tables import RECORD_KEY, ViewTopicTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE = ("topic", "partition", "offset")


def prepare_view_rows(table: ViewTopicTable) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to one row a key, with the staging columns of ``layout``; a tombstone's is deleted.

    A record that is not a row as declared fails the query, superseded or not.
    """
    from pyspark.sql import functions as F

    parsed, typed = _parsed(), _typed(table)
    last = F.max_by(F.struct(*table.payload, "offset", "_deleted"), F.col("offset")).alias("last")
    of_last = [F.col("last")[c].alias(c) for c in (*table.payload, "_deleted")]
    position = [F.lit(0).cast("bigint").alias("_epoch")]
    position += [F.col("last")["offset"].alias(name) for name in ("_pos", "_offset")]
    identity = [F.first(c).alias(c) for c in table.key if c not in table.row_key]
    result: list[Column | str] = [*table.key, *table.hidden, *position, *of_last]
    return lambda raw: raw.select(*parsed).select(*typed).groupBy(*table.row_key).agg(*identity, last).select(*result)


def prepare_misfits(table: ViewTopicTable) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to those that are not rows as declared: their places, and a column `_fault`."""
    parsed, found = _parsed(), _fault(table).alias(FAULT)
    return lambda raw: raw.select(*parsed).select(*_PLACE, found).where(f"{FAULT} IS NOT NULL")


def _parsed() -> list[Column]:
    """`k` and `v`, the values of key and row as text by their columns; null for what is no JSON object."""
    from pyspark.sql import functions as F

    text = "map<string, string>"
    key, value = (F.col(side).cast("string") for side in ("key", "value"))
    return [
        *(F.col(name) for name in _PLACE),
        key.alias(RECORD_KEY),
        F.col("value").isNull().alias("_tombstone"),
        F.from_json(key, text).alias("k"),
        F.from_json(value, text).alias("v"),
    ]


def _typed(table: ViewTopicTable) -> list[Column]:
    from pyspark.sql import functions as F

    found = _fault(table)
    deleted = F.when(found.isNotNull(), refuse_fault(found).cast("boolean")).otherwise(F.col("_tombstone"))
    keys = [_value("k", c, table.columns[c]).alias(c) for c in table.key]
    rows = [_value("v", c, table.columns[c]).alias(c) for c in table.payload]
    return [F.col(RECORD_KEY), F.col("offset"), *keys, *rows, deleted.alias("_deleted")]


def _fault(table: ViewTopicTable) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(*_faults(table))


def _faults(table: ViewTopicTable) -> Iterator[Column]:
    """What a record may be refused for, the first that is not null."""
    from pyspark.sql import functions as F

    is_row = F.col("_tombstone") | F.col("v").isNotNull()
    yield F.when(F.col("k").isNull() | ~is_row, fault("no_row"))
    for side, names in (("k", table.key), ("v", table.payload)):
        for name in names:
            sent = F.col(side)[name].isNotNull()
            fits = F.when(sent, _value(side, name, table.columns[name]).isNotNull())
            fits = fits.otherwise(_may_be_null(table, side, name))
            yield F.when(F.col(side).isNotNull() & ~fits, fault("bad_value", F.lit(name)))


def _may_be_null(table: ViewTopicTable, side: str, name: str) -> Column:
    """A column that is not there at all is not declared as the view has it."""
    from pyspark.sql import functions as F

    return F.map_contains_key(F.col(side), name) & F.lit(side == "v" or name in table.nullable)


def _value(side: str, name: str, column: ColumnType) -> Column:
    from pyspark.sql import functions as F

    text = F.col(side)[name]
    return F.unhex(text) if column.kind == "binary" else of_text(text, column)
