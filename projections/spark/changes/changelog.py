"""Debezium's change events reduced to one row a key, inside the JVM."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc.changes.rules import OP_DELETE, OP_SNAPSHOT
from projections.declaring.tables import ChangelogTable, set_at
from projections.spark.changes.change_events import ABSENT, APPLIED, is_absent, listed, missing, prepare_changes
from projections.spark.changes.parsers import parser_of
from projections.spark.failures import AT, FAULT, fault, refuse
from projections.spark.gathering import gathered
from projections.spark.table_kind import Fold, Registry, Step, TableKind


class NewestRows(TableKind[ChangelogTable]):
    """The newest row of each key of a captured table."""

    always_read = "_op"

    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """See `TableKind`."""
        return self._decoding(registry), _newest_per_key(self.table)

    def questions(self, registry: Registry) -> Iterator[Step]:
        """Which records are at fault, and then which lack a column."""
        yield from super().questions(registry)
        yield _lacking(self.table, self._decoding(registry))

    def _decoding(self, registry: Registry) -> Step:
        return prepare_changes(self.table, parser_of(self.table, registry), self.table.sometimes_unset)

    def lacks(self) -> Column:
        """Whether a value was unavailable in every record of the key."""
        unset = [F.col(set_at(c)).isNull() for c in self.table.sometimes_unset]
        return functools.reduce(operator.or_, unset, F.lit(False)) & ~F.col("_deleted")

    def there(self, staged: DataFrame) -> DataFrame:
        """Without tombstones of keys that have no record left."""
        return staged.where(F.col("_pos").isNotNull())


def _newest_per_key(table: ChangelogTable) -> Fold:
    """From changes to one row a key, with the staging columns of ``layout``.

    A tombstone that no change event of its key precedes in the range has a null position: the stored row gives it one.
    A column whose value is unavailable (TOAST) takes the last one known in the range, with the position of that record.
    A key's newest record must have every column, else the query fails; those before it may be of an earlier table. One
    that lacks a column is filled by the row that a snapshot read after it, which the position alone would pass over.
    """
    known = list(table.sometimes_unset)
    aggregates, row = _aggregates(table, known), _row()
    result: list[Column | str] = [*table.key, *(_column(c, known) for c in table.payload), *_staging(table, known)]
    return lambda changes, stored: gathered(changes, table.key).agg(*aggregates).select("*", row).select(*result)


def _lacking(table: ChangelogTable, decode: Step) -> Step:
    """From raw records, otherwise in order, to those that lack a column and are replaced by no other.

    Their places, and a column `_fault`. All of a key at once: without the newest, the one before would be the newest.
    """
    order = F.struct("_epoch", "_pos", "_offset")
    of_rows = F.col("_tombstone") | F.col("_op").isin(*APPLIED)  # a TRUNCATE has no key
    of_key, of_life = Window.partitionBy(*table.key), Window.partitionBy(*table.key, "_epoch")
    newest = F.max(F.when(_is_whole(), order)).over(of_key)
    after = F.greatest(
        F.max(F.when(_is_read_again(), F.col("_offset"))).over(of_life),
        F.max(F.when(F.col("_tombstone"), F.col("_offset"))).over(of_key),
    )
    replaced = F.coalesce(order < newest, F.lit(False)) | F.coalesce(F.col("_offset") < after, F.lit(False))
    absent = fault("column_absent", listed(F.col(ABSENT))).alias(FAULT)

    def lacking(raw: DataFrame) -> DataFrame:
        marked = decode(raw).where(of_rows).withColumn("_replaced", replaced)
        return marked.where((F.length(ABSENT) > 0) & ~F.col("_replaced")).select(f"{AT}.*", absent)

    return lacking


def _is_whole() -> Column:
    """Whether a change lacks no column."""
    return ~F.col("_tombstone") & (F.length(ABSENT) == 0)


def _is_read_again() -> Column:
    """Whether a change is a whole row that a snapshot read, which is newer than every record before it."""
    return _is_whole() & (F.col("_op") == OP_SNAPSHOT) & (F.col("_pos") < 0)


def _row() -> Column:
    """The change whose values count; the place of the row is that of the last one."""
    return F.when(_is_filled(), F.col("_again")).otherwise(F.col("_last")).alias("_row")


def _is_filled() -> Column:
    last, again = F.col("_last"), F.col("_again")
    later = (again["_offset"] > last["_offset"]) & (again["_epoch"] == last["_epoch"])
    return (F.length(last[ABSENT]) > 0) & F.coalesce(later, F.lit(False))


def _aggregates(table: ChangelogTable, known: list[str]) -> list[Column]:
    order = F.struct("_epoch", "_pos", "_offset")
    applied = ~F.col("_tombstone")
    place = ("_op", "_epoch", "_pos", "_offset", F.col(AT)["partition"].alias("_partition"), ABSENT)
    latest, again = F.struct(*place, *table.payload, *(missing(c) for c in known)), _is_read_again()
    return [
        F.max_by(F.when(applied, latest), F.when(applied, order)).alias("_last"),
        F.max_by(F.when(again, latest), F.when(again, F.col("_offset"))).alias("_again"),
        F.max(F.when(F.col("_tombstone"), F.col("_offset"))).alias("_buried"),
        F.max(F.when(applied, F.col("_offset"))).alias("_latest"),
        F.max(F.when(applied & (F.col("_op") == OP_DELETE), F.col("_offset"))).alias("_deletion"),
        *(_last_known(c, order).alias(f"_known_{c}") for c in known),
    ]


def _last_known(column: str, order: Column) -> Column:
    here = (F.col("_op") != OP_DELETE) & ~F.col(missing(column)) & ~is_absent(column)
    known = F.struct(F.col(column).alias("value"), F.col("_pos").alias("at"), F.col("_epoch").alias("life"))
    return F.max_by(F.when(here, known), F.when(here, order))


def _known(column: str) -> Column:
    """The last value that a record of the same life of the source had; one of an earlier life says nothing."""
    known = F.col(f"_known_{column}")
    return F.when(known["life"] == F.col("_last")["_epoch"], known)


def _column(name: str, known: list[str]) -> Column:
    value = F.col("_row")[name]
    if name not in known:
        return value.alias(name)
    unavailable = F.col("_row")[missing(name)]
    return F.when(unavailable, _known(name)["value"]).otherwise(value).alias(name)


def _staging(table: ChangelogTable, known: list[str]) -> list[Column]:
    row, last = F.col("_row"), F.col("_last")
    is_deletion = F.coalesce(last["_op"], F.lit(OP_DELETE)) == OP_DELETE
    # A tombstone has the position of the record of its key before it. It is old if that record is old.
    follows_last = (F.col("_buried") > F.col("_latest")) & (F.col("_latest") == last["_offset"])
    tombstone_is_last = F.coalesce(follows_last, F.col("_buried").isNotNull())
    # The tombstone of an old deletion stands right behind it and may come in the next batch: it is passed over here.
    awaits_tombstone = (F.col("_deletion") == F.col("_latest")) & (F.col("_latest") > last["_offset"])
    return [
        F.coalesce(last["_epoch"], F.lit(0)).alias("_epoch"),
        last["_pos"].alias("_pos"),
        F.when(tombstone_is_last, F.greatest(last["_offset"], F.col("_buried")))
        .when(awaits_tombstone, F.col("_latest") + 1)
        .otherwise(last["_offset"])
        .alias("_offset"),
        _whole_or_deleted(table, is_deletion | F.coalesce(tombstone_is_last, F.lit(False))).alias("_deleted"),
        *(F.when(row[missing(c)], _known(c)["at"]).otherwise(last["_pos"]).alias(set_at(c)) for c in known),
    ]


def _whole_or_deleted(table: ChangelogTable, deleted: Column) -> Column:
    """Whether the row is deleted; one that is not, and lacks a column, fails the query."""
    row = F.col("_row")
    place = {"topic": F.lit(table.topic), "partition": row["_partition"], "offset": row["_offset"]}
    refused = refuse("column_absent", listed(row[ABSENT]), place=place).cast("boolean")
    return F.when((F.length(row[ABSENT]) > 0) & ~deleted, refused).otherwise(deleted)
