"""Events folded into rows inside the JVM: the last event that sets a column decides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eventstore.aggregate import Aggregate
from projections.setters import Setter
from projections.spark.decode import Decoder
from projections.tables import EventTable, set_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def prepare_declared_fold(table: EventTable, decoder: Decoder) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to one row a stream: what each column was set to, and at which version.

    ``max_by(value, version)`` needs no order of arrival and does not mind a record that comes twice. A stream is
    deleted where one of its records has no value: events of it may lie before that.
    """
    from pyspark.sql import functions as F

    decode, set_columns, order = decoder.prepare(), table.setters or {}, order_of(decoder)
    facts: list[Column | str] = [
        "_stream", "_version", "_at_offset", order.alias("_order"), F.col("_type").isNull().alias("_gone"),
        *(set_value(setters, decoder, table.columns[c].ddl).alias(c) for c, setters in set_columns.items()),
        *(_sets(setters).alias(set_at(c)) for c, setters in set_columns.items()),
    ]  # fmt: skip
    aggregates, key = _aggregates(list(set_columns)), key_column(table)
    names = [*set_columns, *(set_at(c) for c in set_columns), *STAGING]

    def fold(raw: DataFrame) -> DataFrame:
        return decode(raw).select(*facts).groupBy("_stream").agg(*aggregates).select(key, *names)

    return fold


STAGING = ("_epoch", "_pos", "_offset", "_deleted", "_first", "_count")


def _aggregates(columns: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as F

    order = F.col("_version")
    return [
        *(F.max_by(F.col(c), F.when(F.col(set_at(c)), F.col("_order"))).alias(c) for c in columns),
        *(F.max(F.when(F.col(set_at(c)), order)).alias(set_at(c)) for c in columns),
        F.lit(0).cast("bigint").alias("_epoch"),
        F.max(order).alias("_pos"),
        F.max("_at_offset").alias("_offset"),
        F.max("_gone").alias("_deleted"),
        F.min(order).alias("_first"),
        # Versions, not records: one that is repeated must not hide one that is missing.
        F.size(F.collect_set(order)).cast("bigint").alias("_count"),
    ]


def order_of(decoder: Decoder) -> Column:
    """What orders a stream's events: the version, and where a record may become several which of them it is."""
    from pyspark.sql import functions as F

    return F.struct("_version", "_nth") if decoder.splits else F.col("_version")


def key_column(table: EventTable) -> Column:
    """The key column out of the stream's name."""
    return identity(table.aggregate).alias(table.key[0])


def identity(aggregate: type[Aggregate]) -> Column:
    """The aggregate's id: the part of the stream's name after the category."""
    from pyspark.sql import functions as F

    return F.substring(F.col("_stream"), len(aggregate.category) + 2, 1 << 20)


def _sets(setters: tuple[Setter, ...]) -> Column:
    from pyspark.sql import functions as F

    return F.col("_type").isin([setter.event.name for setter in setters])


def set_value(setters: tuple[Setter, ...], decoder: Decoder, ddl: str) -> Column:
    """What the event at hand sets the column to; a field missing in an older schema of the event is null."""
    from pyspark.sql import functions as F

    choice = F.when(F.lit(False), F.lit(None).cast(ddl))
    for setter in setters:
        is_type = F.col("_type") == setter.event.name
        choice = choice.when(is_type, _from_event(setter, decoder).cast(ddl))
    return choice


def _from_event(setter: Setter, decoder: Decoder) -> Column:
    from pyspark.sql import functions as F

    if setter.field is None:
        return F.lit(setter.value)
    held = [
        F.col(column)[setter.field]
        for column, schema in decoder.columns_of(setter.event.name)
        if any(f["name"] == setter.field for f in schema.schema["fields"])
    ]
    return F.coalesce(*held) if held else F.lit(None)
