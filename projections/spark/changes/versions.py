"""Debezium's change events as versions of their rows, and the time for which each version is valid.

Versions are ordered by their place in the source. Valid at a time t is the last version of those that are valid from t
or before. The newest version therefore wins in the end, even if the source's clock was set back between two.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from projections.declaring.tables import FROM, TO, VALID_FROM, VersionTable
from projections.planning.plans import OF_KEY, OF_TABLE
from projections.spark.changes.change_events import missing, prepare_changes
from projections.spark.changes.parsers import parser_of
from projections.spark.gathering import gathered
from projections.spark.table_kind import Fold, Registry, Step, TableKind, marked, valid_at_some_time

# Microseconds that no timestamp reaches.
BEGINNING, END = -(1 << 62), 1 << 62
_WHOLE = -(1 << 63)  # pyspark's Window.unboundedPreceding, without importing it


class RowVersions(TableKind[VersionTable]):
    """A row for each change of a captured table's rows."""

    always_read = "_op"

    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """See `TableKind`. Versions are made of changes alone, and a tombstone has only a key."""
        decode = prepare_changes(self.table, parser_of(self.table, registry), self.table.sometimes_unavailable)
        return lambda raw: decode(raw.where("value IS NOT NULL")), _versions(self.table)

    def lacks(self) -> Column:
        """Whether a version is the first of its key and yet lacks a value."""
        return F.col("_unset").isNotNull() & (F.row_number().over(_in_order(self.table)) == 1)

    def handed(self, rows: DataFrame, name: str, *, partitioned: bool) -> DataFrame:
        """The versions with their times, or with their validity as `join_versions` takes it."""
        if partitioned:
            return valid_at_some_time(with_times(rows, self.table))
        return marked(with_validity(rows, self.table), {"_valid": {OF_TABLE: name, OF_KEY: self.table.key[0]}})


def _versions(table: VersionTable) -> Fold:
    """From changes to one row a change, with the staging columns of ``layout``.

    A record that comes twice gives one row. A tombstone gives none: the deletion before it is the version.
    """
    unset = F.concat_ws(",", *(F.when(F.col(missing(c)), F.lit(c)) for c in table.sometimes_unavailable))
    row = F.struct(*table.payload, VALID_FROM, F.nullif(unset, F.lit("")).alias("_unset"), "_op", "_offset")
    first, key = F.min_by(row, F.col("_offset")).alias("_row"), [*table.key, "_epoch", "_pos"]
    result: list[Column | str] = [*table.key, *_result(table)]
    return lambda changes, stored: gathered(changes, key).agg(first).select(*result)


def _result(table: VersionTable) -> list[Column]:
    row = F.col("_row")
    varying = {c: F.when(~_is_unset(row["_unset"], c), row[c]) for c in table.sometimes_unavailable}
    return [
        *(varying.get(c, row[c]).alias(c) for c in table.payload),
        row[VALID_FROM].alias(VALID_FROM),
        row["_unset"].alias("_unset"),
        F.col("_epoch"),
        F.col("_pos"),
        row["_offset"].alias("_offset"),
        (row["_op"] == "d").alias("_deleted"),
    ]


def _is_unset(names: Column, column: str) -> Column:
    return F.coalesce(F.array_contains(F.split(names, ","), column), F.lit(False))


def with_validity(rows: DataFrame, table: VersionTable) -> DataFrame:
    """The versions that stand for a row, whole, each with ``_valid``: its key, since when and until when.

    Times are microseconds since 1970, from the first (inclusive) to the second. The first version that is known of a
    key is valid from the beginning of time if it is from a snapshot: its real beginning is not known.
    """
    since, until = (F.coalesce(at, F.lit(bound)) for at, bound in ((FROM, BEGINNING), (TO, END)))
    valid = F.struct(F.col(table.key[0]).alias("key"), since.alias("since"), until.alias("until"))
    return with_times(rows, table).select(*table.columns, valid.alias("_valid"))


def with_times(rows: DataFrame, table: VersionTable) -> DataFrame:
    """The same with the times as two more columns: null for the beginning of time, and for versions still valid."""
    in_order = _in_order(table)
    from_snapshot = (F.col("_pos") < 0) & (F.row_number().over(in_order) == 1)
    since = F.when(~from_snapshot, F.col(VALID_FROM))
    # From the last one backwards: Spark computes a window that grows at its far end once a row, not once a pair.
    later = _in_order(table, backwards=True).rowsBetween(_WHOLE, -1)
    until = F.min(VALID_FROM).over(later)
    whole = [_filled(c, in_order) if c in table.sometimes_unavailable else F.col(c) for c in table.columns]
    return (
        rows.select(*whole, since.alias(FROM), until.alias(TO), "_deleted").where(~F.col("_deleted")).drop("_deleted")
    )


def _in_order(table: VersionTable, *, backwards: bool = False) -> WindowSpec:
    place = [F.col(c).desc() if backwards else F.col(c) for c in ("_epoch", "_pos")]
    return Window.partitionBy(*table.key).orderBy(*place)


def _filled(column: str, in_order: WindowSpec) -> Column:
    """An unavailable value is that of the version before; a null that was sent stays one."""
    unavailable = _is_unset(F.col("_unset"), column)
    sent = F.when(~unavailable & ~F.col("_deleted"), F.struct(F.col(column).alias("value")))
    last = F.last(sent, ignorenulls=True).over(in_order.rowsBetween(_WHOLE, 0))
    return F.when(unavailable, last["value"]).otherwise(F.col(column)).alias(column)
