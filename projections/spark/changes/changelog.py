"""Debezium's change events reduced to one row a key, inside the JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc.rules import OP_DELETE
from projections.spark.changes.change_events import Encoding, missing, parsed_columns, typed_columns
from projections.spark.gathering import gathered
from projections.tables import ChangelogTable, set_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def prepare_newest_per_key(table: ChangelogTable, encoding: Encoding) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to one row a key, with the staging columns of ``layout``.

    A tombstone that no change event of its key precedes in the range has a null position: the stored row gives it one.
    A column whose value is unavailable (TOAST) takes the last one known in the range, with the position of that record.
    """
    known = list(table.sometimes_unset)
    parsed, typed = parsed_columns(table, encoding), typed_columns(table, encoding, known)
    aggregates = _aggregates(table, known)
    result: list[Column | str] = [*table.key, *(_column(c, known) for c in table.payload), *_staging(known)]

    def newest(raw: DataFrame) -> DataFrame:
        changes = raw.select(*parsed).select(*typed)
        return gathered(changes, table.key).agg(*aggregates).select(*result)

    return newest


def _aggregates(table: ChangelogTable, known: list[str]) -> list[Column]:
    from pyspark.sql import functions as F

    order = F.struct("_epoch", "_pos", "_offset")
    applied = ~F.col("_tombstone")
    latest = F.struct("_op", "_epoch", "_pos", "_offset", *table.payload, *(missing(c) for c in known))
    return [
        F.max_by(F.when(applied, latest), F.when(applied, order)).alias("last"),
        F.max(F.when(F.col("_tombstone"), F.col("_offset"))).alias("tombstone"),
        F.max(F.when(applied, F.col("_offset"))).alias("latest"),
        F.max(F.when(applied & (F.col("_op") == OP_DELETE), F.col("_offset"))).alias("deletion"),
        *(_last_known(c, order).alias(f"known_{c}") for c in known),
    ]


def _last_known(column: str, order: Column) -> Column:
    from pyspark.sql import functions as F

    here = (F.col("_op") != OP_DELETE) & ~F.col(missing(column))
    known = F.struct(F.col(column).alias("value"), F.col("_pos").alias("at"), F.col("_epoch").alias("life"))
    return F.max_by(F.when(here, known), F.when(here, order))


def _known(column: str) -> Column:
    """The last value that a record of the same life of the source had; one of an earlier life says nothing."""
    from pyspark.sql import functions as F

    known = F.col(f"known_{column}")
    return F.when(known["life"] == F.col("last")["_epoch"], known)


def _column(name: str, known: list[str]) -> Column:
    from pyspark.sql import functions as F

    last = F.col("last")[name]
    if name not in known:
        return last.alias(name)
    unavailable = F.col("last")[missing(name)]
    return F.when(unavailable, _known(name)["value"]).otherwise(last).alias(name)


def _staging(known: list[str]) -> list[Column]:
    from pyspark.sql import functions as F

    last, is_deletion = F.col("last"), F.coalesce(F.col("last")["_op"], F.lit(OP_DELETE)) == OP_DELETE
    # A tombstone has the position of its key's record before it: where that one is old, so is the tombstone.
    follows_last = (F.col("tombstone") > F.col("latest")) & (F.col("latest") == last["_offset"])
    tombstone_is_last = F.coalesce(follows_last, F.col("tombstone").isNotNull())
    # The tombstone of an old deletion stands right behind it and may come in the next batch: it is passed over here.
    awaits_tombstone = (F.col("deletion") == F.col("latest")) & (F.col("latest") > last["_offset"])
    return [
        F.coalesce(last["_epoch"], F.lit(0)).alias("_epoch"),
        last["_pos"].alias("_pos"),
        F.when(tombstone_is_last, F.greatest(last["_offset"], F.col("tombstone")))
        .when(awaits_tombstone, F.col("latest") + 1)
        .otherwise(last["_offset"])
        .alias("_offset"),
        (is_deletion | F.coalesce(tombstone_is_last, F.lit(False))).alias("_deleted"),
        *(F.when(last[missing(c)], _known(c)["at"]).otherwise(last["_pos"]).alias(set_at(c)) for c in known),
    ]
