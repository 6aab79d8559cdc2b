"""The records of a view topic to rows, inside the JVM: JSON as `stores.handing_over` writes it, the last of each key.

Kafka's offset is a row's position: all records of a key are in one partition, in the order of the view's commits.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections.declaring.columns import ColumnType
from projections.declaring.tables import RECORD_KEY, ViewTopicTable
from projections.spark.changes.semantic_types import of_text
from projections.spark.failures import AT, FAULT, PLACE, fault
from projections.spark.gathering import gathered
from projections.spark.table_kind import Fold, Registry, Step, TableKind
from projections.stores.layout import POSITION


class ViewRecords(TableKind[ViewTopicTable]):
    """The last record of each key of a view topic; those before it may be of an earlier view."""

    always_read = "_deleted"

    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """See `TableKind`; a last record that is no row as declared is at fault."""
        parsed, typed, rows = _parsed(), _typed(self.table), [*self.table.stored, *POSITION, "_deleted"]
        return lambda raw: newest(raw).select(*parsed).select(*typed), lambda decoded, stored: decoded.select(*rows)


def newest(raw: DataFrame) -> DataFrame:
    """The last record of each key."""
    last = F.max_by(F.struct(*PLACE, "value"), F.col("offset")).alias("last")
    return gathered(raw, ["key"]).agg(last).select("key", "last.*")


def _parsed() -> list[Column]:
    """`k` and `v`, the values of key and row as text by their columns; null for what is no JSON object."""
    key, value = (F.col(side).cast("string") for side in ("key", "value"))
    return [
        F.struct(*PLACE).alias(AT),
        key.alias(RECORD_KEY),
        value.isNull().alias("_tombstone"),
        F.from_json(key, "map<string, string>").alias("k"),
        F.from_json(value, "map<string, string>").alias("v"),
    ]


def _typed(table: ViewTopicTable) -> list[Column | str]:
    return [
        AT,
        *(_value("k", table, c).alias(c) for c in table.key),
        *(_value("v", table, c).alias(c) for c in table.payload),
        *table.hidden,
        F.lit(0).cast("bigint").alias("_epoch"),
        F.col(AT)["offset"].alias("_pos"),
        F.col(AT)["offset"].alias("_offset"),
        F.col("_tombstone").alias("_deleted"),
        F.coalesce(*_faults(table)).alias(FAULT),
    ]


def _faults(table: ViewTopicTable) -> Iterator[Column]:
    """What a record may be refused for, the first that is not null."""
    is_row = F.col("_tombstone") | F.col("v").isNotNull()
    yield F.when(F.col("k").isNull() | ~is_row, fault("no_row"))
    for side, names in (("k", table.key), ("v", table.payload)):
        for name in names:
            sent = F.col(side)[table.record_name(name)].isNotNull()
            fits = F.when(sent, _value(side, table, name).isNotNull())
            fits = fits.otherwise(_may_be_null(table, side, name))
            yield F.when(F.col(side).isNotNull() & ~fits, fault("bad_value", F.lit(name)))


def _may_be_null(table: ViewTopicTable, side: str, name: str) -> Column:
    """A column that is not there at all is not declared as the view has it."""
    return F.map_contains_key(F.col(side), table.record_name(name)) & F.lit(side == "v" or name in table.nullable)


def _value(side: str, table: ViewTopicTable, name: str) -> Column:
    return of_json_text(F.col(side)[table.record_name(name)], table.columns[name])


def of_json_text(text: Column, column: ColumnType) -> Column:
    """The value of a column whose text a record's JSON has."""
    return F.unhex(text) if column.kind == "binary" else of_text(text, column)
