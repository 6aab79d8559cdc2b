"""Event records to the rows of a stream, inside the JVM: one row an event, none of them changed but by its deletion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections.declaring import tables
from projections.declaring.streams import EventStream
from projections.faults import FORGOTTEN, MESSAGES, TOO_LATE
from projections.planning.plans import EVENT_TIME
from projections.spark.events.decode import Decoder
from projections.spark.events.fold import identity, order_of, set_values
from projections.spark.failures import AT, FAULT, fault, refuse
from projections.spark.gathering import gathered
from projections.spark.table_kind import Fold, Registry, Step, TableKind, marked, marks_of_key

FLOOR = "_floor"  # of raw records: before it no event comes any more, in microseconds since 1970; null without one


class Facts(TableKind[EventStream]):
    """A row for each event of a stream."""

    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """See `TableKind`."""
        decoder = Decoder.of_table(self.table, registry)
        return _with_times(self.table, decoder), _facts(self.table, decoder)

    def there(self, staged: DataFrame) -> DataFrame:
        """Without those that are too late."""
        return staged if self.table.retain is None else staged.where("_late < 2")

    def handed(self, rows: DataFrame, name: str, *, partitioned: bool) -> DataFrame:
        """With the column of the event time marked."""
        marks = marks_of_key(self.table) if partitioned else {}
        marks.setdefault(self.table.time, {})[EVENT_TIME] = True
        return marked(rows, marks)


def _with_times(stream: EventStream, decoder: Decoder) -> Step:
    """From raw records to decoded ones; an event of the stream without a time is at fault."""
    decode, lacking = _prepared(stream, decoder, bind=bool(stream.personal)), _lacking(stream, decoder)
    timeless = F.when(_is_of(stream) & lacking.isNotNull(), fault("no_time", lacking))
    faults = F.coalesce(FAULT, timeless)
    return lambda raw: decode(raw).withColumn(FAULT, faults)


def _is_of(stream: EventStream) -> Column:
    return F.col("_type").isin([event.name for event in stream.events])


def _facts(stream: EventStream, decoder: Decoder) -> Fold:
    """From decoded records to one row an event of the stream's types, with the staging columns of ``layout``.

    A record that comes twice gives one row. If the aggregate's id is the key, its second event fails the query. A row
    is deleted if one of its key's records has no value. If the stream has a promise, ``_late`` is 2 for a row of late
    events only, which is to be left out, and 1 for a row of which some events are late. The records alone decide this,
    in every batch alike.
    """
    relevant = F.col("_type").isNull() | _is_of(stream)
    by = ["_stream"] if stream.id_column is None else ["_stream", "_version"]
    columns, result = [*_identity(stream), *_values(stream, decoder)], _result(stream)
    late = F.lit(False) if stream.retain is None else F.coalesce(_is_too_late(stream, decoder), F.lit(False))
    aggregates = _aggregates(columns, order_of(decoder), late)
    return lambda decoded, stored: gathered(decoded.where(relevant), by).agg(*aggregates).select(*result)


def prepare_late(stream: EventStream, registry: Registry) -> Step:
    """The step from raw records with a floor, `FLOOR`, to those of a stream's events that are no rows of it any more.

    They are too late by the stream's promise, or from before the floor: their places, and a column `_fault`.
    """
    decoder = Decoder.of_table(stream, registry)
    decode = _prepared(stream, decoder, keep=[FLOOR])
    time = _event_time(stream, dict(_fields(stream, decoder)))
    detail = F.concat(time.cast("string"), F.lit(", recorded "), F.coalesce("ce_time", F.lit("at an unknown time")))
    forgotten = F.when(F.unix_micros(time) < F.col(FLOOR), _said(FORGOTTEN, detail))
    late = F.when(_is_too_late(stream, decoder), _said(TOO_LATE, detail)).otherwise(forgotten).alias("late")
    mine = _is_of(stream)
    return lambda raw: decode(raw).where(mine).select(AT, late).where("late IS NOT NULL").select(f"{AT}.*", "late.*")


def _said(kind: str, detail: Column) -> Column:
    words = F.lit(MESSAGES[kind].format(detail=""))
    return F.struct(F.lit(kind).alias("kind"), F.concat(words, detail).alias("message"))


def _is_too_late(stream: EventStream, decoder: Decoder) -> Column:
    assert stream.retain is not None  # noqa: S101 - the callers ask of such streams alone
    time = _event_time(stream, dict(_fields(stream, decoder)))
    return F.unix_micros(_recorded()) - F.unix_micros(time) > stream.retain.late_micros


def _prepared(stream: EventStream, decoder: Decoder, *, keep: Sequence[str] = (), bind: bool = False) -> Step:
    recorded = ["ce_time"] if stream.timed_by_record or stream.retain is not None else []
    return decoder.prepare(keep=[*recorded, *keep], bind=bind)


def _aggregates(columns: Sequence[Column], order: Column, late: Column) -> list[Column]:
    """The first event of a key as a struct, and what tells whether there is another; not of those that are late."""
    deleted = F.col("_type").isNull()
    earliest = F.struct(late.alias("late"), deleted.alias("deleted"), order.alias("order"), "_at_offset")
    counts = ~deleted & ~late
    return [
        F.min_by(F.struct(*columns, F.col(AT)["partition"].alias("_partition")), earliest).alias("row"),
        F.min(F.when(counts, order)).alias("first"),
        F.max(F.when(counts, order)).alias("last"),
        F.max("_version").alias("version"),
        F.max("_at_offset").alias("_offset"),
        F.max(deleted).alias("_deleted"),
        (F.min(late).cast("int") + F.max(late).cast("int")).alias("_late"),
    ]


def _identity(stream: EventStream) -> list[Column]:
    aggregate, version = identity(stream.aggregate), F.col("_version").cast("bigint")
    numbered = [] if stream.version_column is None else [version.alias(stream.version_column)]
    if stream.id_column is None:
        return [aggregate.alias(stream.key[0]), *numbered]
    key = F.concat(aggregate, F.lit("@"), version.cast("string")).alias(stream.key[0])
    return [key, aggregate.alias(stream.id_column), *numbered]


def _values(stream: EventStream, decoder: Decoder) -> list[Column]:
    """The events' fields, and the event time where it is the record's."""
    fields = dict(_fields(stream, decoder))
    fields[stream.time] = _event_time(stream, fields)
    return [value.alias(c) for c, value in fields.items()]


def _fields(stream: EventStream, decoder: Decoder) -> Iterator[tuple[str, Column]]:
    return ((p, v) for c, setters in stream.fields.items() for p, v in set_values(stream, c, setters, decoder))


def _event_time(stream: EventStream, fields: Mapping[str, Column]) -> Column:
    if stream.time in fields:
        return fields[stream.time]
    return _recorded() if stream.timed_by_record else F.lit(None)


def _recorded() -> Column:
    return F.try_to_timestamp(F.col("ce_time"))


def _lacking(stream: EventStream, decoder: Decoder) -> Column:
    """What a record lacks of the times that are needed of it; null where it has them."""
    time = _event_time(stream, dict(_fields(stream, decoder)))
    header = F.lit("header ce_time")
    own = F.when(time.isNull(), header if stream.timed_by_record else F.lit(f"field {stream.time}"))
    return own if stream.retain is None else own.when(_recorded().isNull(), header)


def _result(stream: EventStream) -> list[Column]:
    row, last = F.col("row"), F.col("last")
    place = {"topic": F.lit(stream.topic), "partition": row["_partition"], "offset": F.col("_offset")}
    second = refuse("second_event", row[stream.key[0]], place=place).cast("bigint")
    return [
        *(row[c].alias(c) for c in (*stream.columns, *stream.sealed)),
        F.unix_micros(row[stream.time]).alias(tables.EVENT_TIME),
        F.lit(0).cast("bigint").alias("_epoch"),
        F.when((F.col("first") < last) & ~F.col("_deleted"), second).otherwise(F.col("version")).alias("_pos"),
        F.col("_offset"),
        F.col("_deleted"),
        *(() if stream.retain is None else (F.col("_late"),)),
    ]
