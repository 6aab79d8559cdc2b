"""Event records as versions of the rows that are folded from them: a row an event, and the state after each.

The last event before or at a version that sets a column decides it, to null too: one window over a stream's events.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from projections.declaring.streams import EventVersions
from projections.declaring.tables import FROM, SETS, TO, VALID_FROM
from projections.spark.events.decode import Decoder
from projections.spark.events.fold import OfStreams, key_column, kind_number, order_of, set_values
from projections.spark.failures import FAULT, fault
from projections.spark.gathering import gathered
from projections.spark.table_kind import Fold, Registry, Step, valid_at_some_time

_WHOLE = -(1 << 63)  # pyspark's Window.unboundedPreceding, without importing it
_SET = "_set_{}".format


class FoldedVersions(OfStreams[EventVersions]):
    """A row for each event of the streams that a table is folded from."""

    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """See `TableKind`; an event without a time is at fault."""
        decoder = self.decoder(registry)
        decode = decoder.prepare(keep=["ce_time"], bind=bool(self.table.personal))
        timeless = F.col("_type").isNotNull() & F.try_to_timestamp("ce_time").isNull()
        faults = F.coalesce(FAULT, F.when(timeless, fault("no_time", F.lit("header ce_time"))))
        return lambda raw: decode(raw).withColumn(FAULT, faults), _versions(self.table, decoder)

    def lacks(self) -> Column:
        """Whether the event before a row's is missing, and the stream is not deleted."""
        stream = Window.partitionBy(*self.table.key)
        place = F.row_number().over(stream.orderBy("_pos")) - 1
        return (F.col("_pos") != place) & ~F.max("_deleted").over(stream)

    def handed(self, rows: DataFrame, name: str, *, partitioned: bool) -> DataFrame:
        """The states, with their times as timestamps."""
        return valid_at_some_time(with_states(rows, self.table))


def _versions(table: EventVersions, decoder: Decoder) -> Fold:
    """From decoded records to one row an event: what it sets, with the staging columns of ``layout``.

    A record that comes twice gives one row. Where a record without a value is among those of an event, the row is a
    deleted one.
    """
    kinds = list(dict.fromkeys(s.event.name for setters in table.set_by.values() for s in setters))
    values = dict(_values(table, decoder))
    nth = ["_nth"] if decoder.splits else []
    time = F.unix_micros(F.try_to_timestamp("ce_time")).alias(VALID_FROM)
    facts: list[Column | str] = ["_stream", "_version", *nth, "_at_offset", kind_number(kinds), time]
    facts += [value.alias(part) for part, value in values.items()]
    aggregates, result = _aggregates(table, kinds, order_of(decoder)), _result(table)

    def versions(decoded: DataFrame, stored: DataFrame | None) -> DataFrame:
        return gathered(decoded.select(*facts), ["_stream", "_version"]).agg(*aggregates).select(*result)

    return versions


def _values(table: EventVersions, decoder: Decoder) -> Iterator[tuple[str, Column]]:
    return ((part, v) for c, setters in table.set_by.items() for part, v in set_values(table, c, setters, decoder))


def _aggregates(table: EventVersions, kinds: list[str], order: Column) -> list[Column]:
    """What an event sets: where it became several events, the last of them that sets a column decides it."""
    kind, offset = F.col("_kind"), F.col("_at_offset")
    columns: list[Column] = []
    for column, setters in table.set_by.items():
        sets = kind.isin(*(kinds.index(s.event.name) for s in setters))
        columns += [F.max_by(part, F.when(sets, order)).alias(part) for part in table.parts(column)]
        columns.append(F.max(F.coalesce(sets, F.lit(False))).alias(_SET(column)))
    known = F.when(kind.isNotNull(), offset)
    return [
        *columns,
        F.min_by(VALID_FROM, known).alias(VALID_FROM),
        F.max(offset).alias("_offset"),
        F.max(kind.isNull()).alias("_deleted"),
    ]


def _result(table: EventVersions) -> list[Column | str]:
    sets = F.concat_ws(",", *(F.when(F.col(_SET(c)), F.lit(c)) for c in table.set_by))
    return [
        key_column(table),
        *table.payload,
        VALID_FROM,
        sets.alias(SETS),
        *table.sealed,
        F.lit(0).cast("bigint").alias("_epoch"),
        F.col("_version").alias("_pos"),
        "_offset",
        "_deleted",
    ]


def with_states(rows: DataFrame, table: EventVersions) -> DataFrame:
    """The state after each event that sets a column, or is the first of its stream, with its times in microseconds.

    A deleted stream has no states. A state is valid from its event's time until the earliest time of a later event. The
    newest therefore wins in the end, even if a clock was set back.
    """
    stream = Window.partitionBy(*table.key)
    there = (
        rows.withColumn("_stream_deleted", F.max("_deleted").over(stream))
        .where("NOT _stream_deleted")
        .drop("_stream_deleted")
    )
    begun = there.where((F.col(SETS) != "") | (F.col("_pos") == 0))
    before, later = stream.orderBy("_pos"), stream.orderBy(F.col("_pos").desc())
    values = [_last_set(c).over(before.rowsBetween(_WHOLE, 0))["value"].alias(c) for c in table.set_by]
    until = F.min(VALID_FROM).over(later.rowsBetween(_WHOLE, -1))
    return begun.select(*table.key, *values, F.col(VALID_FROM).alias(FROM), until.alias(TO))


def _last_set(column: str) -> Column:
    sets = F.array_contains(F.split(SETS, ","), column)
    return F.last(F.when(sets, F.struct(F.col(column).alias("value"))), ignorenulls=True)
