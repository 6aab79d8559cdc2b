"""Debezium's change events reduced to one row a key, inside the JVM.

The change event's form is Debezium's (op, after, source.lsn, source.snapshot) in JSON without schemas. Every column is
read as text and cast to its declared type: a value that does not fit fails with its place, where a typed ``from_json``
would quietly give null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cdc.rules import OP_DELETE, OP_INSERT, OP_SNAPSHOT, OP_UPDATE, UNAVAILABLE, UNAVAILABLE_BASE64
from projections.columns import ColumnType
from projections.spark.failures import refuse
from projections.tables import ChangelogTable, Table, set_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BELOW_STREAMED = 1 << 62  # half of what a bigint holds; an LSN counts bytes and stays far below
_APPLIED = (OP_INSERT, OP_UPDATE, OP_SNAPSHOT, OP_DELETE)


def prepare_newest_per_key(table: ChangelogTable) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to one row a key, with the staging columns of ``layout``.

    A tombstone that no change event of its key precedes in the range has a null position: the stored row gives it one.
    A column whose value is unavailable (TOAST) takes the last one known in the range, with the position of that record.
    """
    known = list(table.sometimes_unset)
    parsed, typed, aggregates = parsed_columns(table), typed_columns(table, known), _aggregates(table, known)
    result: list[Column | str] = [*table.key, *(_column(c, known) for c in table.payload), *_staging(known)]
    return lambda raw: raw.select(*parsed).select(*typed).groupBy(*table.key).agg(*aggregates).select(*result)


def _aggregates(table: ChangelogTable, known: list[str]) -> list[Column]:
    from pyspark.sql import functions as F

    order = F.struct("_pos", "_offset")
    applied = ~F.col("_tombstone")
    latest = F.struct("_op", "_pos", "_offset", *table.payload, *(missing(c) for c in known))
    return [
        F.max_by(F.when(applied, latest), F.when(applied, order)).alias("last"),
        F.max(F.when(F.col("_tombstone"), F.col("_offset"))).alias("tombstone"),
        *(_last_known(c, order).alias(f"known_{c}") for c in known),
    ]


def parsed_columns(table: Table, *, times: Sequence[str] = ()) -> list[Column]:
    """Key and value of raw records as structs of texts; ``times`` are further numbers of the change event's source."""
    from pyspark.sql import functions as F

    after = ", ".join(f"`{c}`: string" for c in table.columns)
    source = ", ".join(["lsn: bigint", "snapshot: string", *(f"{name}: bigint" for name in times)])
    value = f"op string, after struct<{after}>, source struct<{source}>"
    key = ", ".join(f"`{c}` string" for c in table.key)
    return [
        F.col("topic"), F.col("partition"), F.col("offset"),
        F.col("value").isNull().alias("_tombstone"),
        F.from_json(F.col("key").cast("string"), key).alias("k"),
        F.from_json(F.col("value").cast("string"), value).alias("v"),
    ]  # fmt: skip


def typed_columns(table: Table, known: Sequence[str]) -> list[Column]:
    """The table's columns in their types, whether those ``known`` to vary are unavailable, operation and position."""
    from pyspark.sql import functions as F

    after, types = F.col("v.after"), table.columns
    return [
        *(_cast(F.col("k")[c], types[c], c, required=True).alias(c) for c in table.key),
        *(_cast(after[c], types[c], c).alias(c) for c in table.payload),
        *(F.coalesce(_is_unavailable(after[c]), F.lit(False)).alias(missing(c)) for c in known),
        F.col("_tombstone"),
        _operation().alias("_op"),
        _position().alias("_pos"),
        F.col("offset").alias("_offset"),
    ]


def _operation() -> Column:
    from pyspark.sql import functions as F

    op = F.col("v.op")
    known = F.when(op.isin(*_APPLIED), op)
    return F.when(~F.col("_tombstone"), F.coalesce(known, refuse("bad_json")))


def _position() -> Column:
    """The LSN; a snapshot row's is moved below every streamed one's.

    A transaction that was open while the slot was made is streamed with lower LSNs than the snapshot's, and is newer.
    """
    from pyspark.sql import functions as F

    lsn = F.when(~F.col("_tombstone"), F.coalesce(F.col("v.source.lsn"), refuse("bad_json").cast("bigint")))
    streamed = F.coalesce(F.col("v.source.snapshot"), F.lit("false")) == "false"
    return F.when(streamed, lsn).otherwise(lsn - F.lit(_BELOW_STREAMED))


def _cast(text: Column, column: ColumnType, name: str, *, required: bool = False) -> Column:
    """The text as its declared type; a null key or a text that does not fit fails the query."""
    from pyspark.sql import functions as F

    if column.kind == "string":
        typed = text
    elif column.kind == "binary":
        typed = F.when(~_is_unavailable(text), F.unbase64(text))
    else:
        # isostring writes a date as 2013-01-01Z, which no cast to date takes.
        plain = F.substring(text, 1, 10) if column.kind == "date" else text
        typed = plain.try_cast(column.ddl)
    wrong = typed.isNull() if required else text.isNotNull() & typed.isNull() & ~_is_unavailable(text)
    return F.when(wrong, refuse("bad_value", F.lit(name)).cast(column.ddl)).otherwise(typed)


def _is_unavailable(text: Column) -> Column:
    return text.isin(UNAVAILABLE, UNAVAILABLE_BASE64)


def missing(column: str) -> str:
    """The column that tells whether a value was unavailable."""
    return f"_missing_{column}"


def _last_known(column: str, order: Column) -> Column:
    from pyspark.sql import functions as F

    here = (F.col("_op") != "d") & ~F.col(missing(column))
    return F.max_by(
        F.when(here, F.struct(F.col(column).alias("value"), F.col("_pos").alias("at"))), F.when(here, order)
    )


def _column(name: str, known: list[str]) -> Column:
    from pyspark.sql import functions as F

    last = F.col("last")[name]
    if name not in known:
        return last.alias(name)
    unavailable = F.col("last")[missing(name)]
    return F.when(unavailable, F.col(f"known_{name}")["value"]).otherwise(last).alias(name)


def _staging(known: list[str]) -> list[Column]:
    from pyspark.sql import functions as F

    last = F.col("last")
    tombstone_is_last = F.coalesce(F.col("tombstone") > last["_offset"], F.col("tombstone").isNotNull())
    return [
        F.lit(0).cast("bigint").alias("_epoch"),
        last["_pos"].alias("_pos"),
        F.greatest(last["_offset"], F.col("tombstone")).alias("_offset"),
        ((F.coalesce(last["_op"], F.lit("d")) == "d") | F.coalesce(tombstone_is_last, F.lit(False))).alias("_deleted"),
        *(F.when(last[missing(c)], F.col(f"known_{c}")["at"]).otherwise(last["_pos"]).alias(set_at(c)) for c in known),
    ]
