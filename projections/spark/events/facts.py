"""Event records to the rows of a stream, inside the JVM: one row an event, none of them changed but by its deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from projections.declaring.streams import EventStream
from projections.declaring.tables import EVENT_TIME
from projections.faults import FORGOTTEN, MESSAGES, TOO_LATE
from projections.spark.events.decode import Decoder
from projections.spark.events.fold import identity, order_of, set_values
from projections.spark.failures import FAULT, fault, refuse
from projections.spark.gathering import gathered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FLOOR = "_floor"  # of raw records: before it no event comes any more, in microseconds since 1970; null without one


def prepare_facts(stream: EventStream, decoder: Decoder) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to one row an event of the stream's types, with the staging columns of ``layout``.

    A record that comes twice gives one row. An event without a time fails the query. If the aggregate's id is the key,
    its second event fails it too. A row is deleted if one of its key's records has no value. If the stream has a
    promise, ``_late`` is 2 for a row of late events only, which is to be left out, and 1 for a row of which some events
    are late. The records alone decide this, in every batch alike.
    """
    decode = _prepared(stream, decoder, bind=bool(stream.personal))
    relevant = F.col("_type").isNull() | F.col("_type").isin([event.name for event in stream.events])
    by = ["_stream"] if stream.id_column is None else ["_stream", "_version"]
    columns, result = [*_identity(stream), *_values(stream, decoder)], _result(stream)
    late = F.lit(False) if stream.retain is None else F.coalesce(_is_too_late(stream, decoder), F.lit(False))
    aggregates = _aggregates(columns, order_of(decoder), late)
    return lambda raw: gathered(decode(raw).where(relevant), by).agg(*aggregates).select(*result)


def prepare_late(stream: EventStream, decoder: Decoder) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records with a floor, `FLOOR`, to those of a stream's events that are no rows of it any more.

    They are too late by the stream's promise, or from before the floor: their places, and a column `_fault`.
    """
    decode = _prepared(stream, decoder, keep=[FLOOR])
    time = _event_time(stream, dict(_fields(stream, decoder)))
    detail = F.concat(time.cast("string"), F.lit(", recorded "), F.coalesce("ce_time", F.lit("at an unknown time")))
    forgotten = F.when(F.unix_micros(time) < F.col(FLOOR), _said(FORGOTTEN, detail))
    late = F.when(_is_too_late(stream, decoder), _said(TOO_LATE, detail)).otherwise(forgotten).alias("late")
    mine = F.col("_type").isin([event.name for event in stream.events])
    offset = F.col("_at_offset").alias("offset")
    return lambda raw: (
        decode(raw)
        .where(mine)
        .select("topic", "partition", offset, late)
        .where("late IS NOT NULL")
        .select("topic", "partition", "offset", "late.*")
    )


def _said(kind: str, detail: Column) -> Column:
    words = F.lit(MESSAGES[kind].format(detail=""))
    return F.struct(F.lit(kind).alias("kind"), F.concat(words, detail).alias("message"))


def _is_too_late(stream: EventStream, decoder: Decoder) -> Column:
    assert stream.retain is not None  # noqa: S101 - the callers ask of such streams alone
    time = _event_time(stream, dict(_fields(stream, decoder)))
    return F.unix_micros(_recorded()) - F.unix_micros(time) > stream.retain.late_micros


def prepare_timeless(stream: EventStream, decoder: Decoder) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records that can be decoded to those without a time: their places, and a column `_fault`."""
    decode, time = _prepared(stream, decoder), _event_time(stream, dict(_fields(stream, decoder)))
    lacking = _lacking(stream, time)
    mine = F.col("_type").isin([event.name for event in stream.events])
    timeless = fault("no_time", lacking).alias(FAULT)
    place = F.col("_at_offset").alias("offset")
    return lambda raw: decode(raw).where(mine & lacking.isNotNull()).select("topic", "partition", place, timeless)


def _prepared(
    stream: EventStream, decoder: Decoder, *, keep: Sequence[str] = (), bind: bool = False
) -> Callable[[DataFrame], DataFrame]:
    recorded = ["ce_time"] if _needs_record_time(stream) else []
    return decoder.prepare(keep=["topic", "partition", *recorded, *keep], bind=bind)


def _needs_record_time(stream: EventStream) -> bool:
    return stream.timed_by_record or stream.retain is not None


def _aggregates(columns: Sequence[Column], order: Column, late: Column) -> list[Column]:
    """The first event of a key as a struct, and what tells whether there is another; not of those that are late."""
    deleted = F.col("_type").isNull()
    earliest = F.struct(late.alias("late"), deleted.alias("deleted"), order.alias("order"), "_at_offset")
    counts = ~deleted & ~late
    return [
        F.min_by(F.struct(*columns, F.col("partition")), earliest).alias("row"),
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
    time = _event_time(stream, fields)
    place = {"topic": F.col("topic"), "partition": F.col("partition"), "offset": F.col("_at_offset")}
    lacking = _lacking(stream, time)
    missing = refuse("no_time", lacking, place=place).cast("timestamp")
    fields[stream.time] = F.when(lacking.isNotNull() & F.col("_type").isNotNull(), missing).otherwise(time)
    return [value.alias(c) for c, value in fields.items()]


def _fields(stream: EventStream, decoder: Decoder) -> Iterator[tuple[str, Column]]:
    return ((p, v) for c, setters in stream.fields.items() for p, v in set_values(stream, c, setters, decoder))


def _event_time(stream: EventStream, fields: Mapping[str, Column]) -> Column:
    if stream.time in fields:
        return fields[stream.time]
    return _recorded() if stream.timed_by_record else F.lit(None)


def _recorded() -> Column:
    return F.try_to_timestamp(F.col("ce_time"))


def _lacking(stream: EventStream, time: Column) -> Column:
    """What a record lacks of the times that are needed of it; null where it has them."""
    header = F.lit("header ce_time")
    own = F.when(time.isNull(), header if stream.timed_by_record else F.lit(f"field {stream.time}"))
    return own if stream.retain is None else own.when(_recorded().isNull(), header)


def _result(stream: EventStream) -> list[Column]:
    row, last = F.col("row"), F.col("last")
    place = {"topic": F.lit(stream.topic), "partition": row["partition"], "offset": F.col("_offset")}
    second = refuse("second_event", row[stream.key[0]], place=place).cast("bigint")
    return [
        *(row[c].alias(c) for c in (*stream.columns, *stream.sealed)),
        F.unix_micros(row[stream.time]).alias(EVENT_TIME),
        F.lit(0).cast("bigint").alias("_epoch"),
        F.when((F.col("first") < last) & ~F.col("_deleted"), second).otherwise(F.col("version")).alias("_pos"),
        F.col("_offset"),
        F.col("_deleted"),
        *(() if stream.retain is None else (F.col("_late"),)),
    ]
