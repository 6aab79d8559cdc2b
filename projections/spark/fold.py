"""Events folded into rows inside the JVM: the last event that sets a column decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.spark.decode import Decoder
from projections.tables import EventTable, Setter, set_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def fold_declared(raw: DataFrame, table: EventTable, decoder: Decoder) -> DataFrame:
    """One row a stream, with the staging columns of ``layout``: what each column was set to, and at which version.

    ``max_by(value, version)`` needs no order of arrival and does not mind a record that comes twice.
    """
    from pyspark.sql import functions as F  # noqa: N812

    decoded = decoder.decode(raw)
    set_columns = table.setters or {}
    facts = decoded.select(
        "stream", "version", "offset",
        *(_value(setters, decoder, table.columns[c].ddl).alias(c) for c, setters in set_columns.items()),
        *(_sets(setters).alias(set_at(c)) for c, setters in set_columns.items()),
    )  # fmt: skip
    folded = facts.groupBy("stream").agg(
        *(F.expr(f"max_by(`{c}`, version) filter (where `{set_at(c)}`)").alias(c) for c in set_columns),
        *(F.expr(f"max(version) filter (where `{set_at(c)}`)").alias(set_at(c)) for c in set_columns),
        F.lit(0).cast("bigint").alias("_epoch"),
        F.max("version").alias("_pos"),
        F.max("offset").alias("_offset"),
        F.lit(False).alias("_deleted"),
        F.min("version").alias("_first"),
        F.count("*").alias("_count"),
    )
    return with_key(folded, table)


def with_key(frame: DataFrame, table: EventTable) -> DataFrame:
    """Replace the stream by the key column: the part of the stream's name after the category."""
    from pyspark.sql import functions as F  # noqa: N812

    key = F.expr(f"substring(stream, {len(table.aggregate.category) + 2})").alias(table.key[0])
    return frame.select(key, *(c for c in frame.columns if c != "stream"))


def _sets(setters: tuple[Setter, ...]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("type").isin([setter.event.name for setter in setters])


def _value(setters: tuple[Setter, ...], decoder: Decoder, ddl: str) -> Column:
    """What the event at hand sets the column to; a field missing in an older schema of the event is null."""
    from pyspark.sql import functions as F  # noqa: N812

    choice = F.when(F.lit(False), F.lit(None).cast(ddl))
    for setter in setters:
        is_type = F.col("type") == setter.event.name
        choice = choice.when(is_type, _from_event(setter, decoder).cast(ddl))
    return choice


def _from_event(setter: Setter, decoder: Decoder) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if setter.field is None:
        return F.lit(setter.value)
    held = [
        F.col(column)[setter.field]
        for column, schema in decoder.columns_of(setter.event.name)
        if any(f["name"] == setter.field for f in schema.schema["fields"])
    ]
    return F.coalesce(*held) if held else F.lit(None)
