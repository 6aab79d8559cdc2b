"""Debezium's change events to columns, inside the JVM, and these to one row a key.

The rules are those of `cdc.changes.change_event`, for JSON and for Avro. Every column is read as text and turned into
its declared type: a value that does not fit fails with its place, where a typed ``from_json`` would quietly give null.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdc.changes.rules import (
    BINLOG_BYTES,
    FIELD_AFTER,
    FIELD_EPOCH,
    OP_DELETE,
    OP_INSERT,
    OP_MESSAGE,
    OP_SNAPSHOT,
    OP_TRUNCATE,
    OP_UPDATE,
    STREAMED,
)
from projections.declaring.columns import ColumnType
from projections.declaring.tables import BELOW_STREAMED, VALID_FROM, CapturedTable, ChangelogTable, set_at
from projections.spark.changes.bit_fields import is_unavailable, placeholder
from projections.spark.changes.parsers import RecordParser, parser_of
from projections.spark.changes.semantic_types import is_value, typed
from projections.spark.failures import AT, FAULT, PLACE, fault, refuse
from projections.spark.gathering import gathered
from projections.spark.table_kind import Fold, Registry, Step, TableKind

TIMES: Final = ("ts_us", "ts_ns", "ts_ms")  # of the change event's source; older connectors have the last only
APPLIED: Final = (OP_INSERT, OP_UPDATE, OP_SNAPSHOT, OP_DELETE)
ABSENT: Final = "_absent"  # the column with the names of absent columns, and a comma between two
_WITH_ROW: Final = (OP_INSERT, OP_UPDATE, OP_SNAPSHOT)  # operations whose change event has the row after it


def prepare_changes(table: CapturedTable, parser: RecordParser, known: Sequence[str]) -> Step:
    """From raw records to the table's columns in their types, operation and position, each with place and fault.

    Whether a column of ``known`` was unavailable is a column, `missing`. `ABSENT` has the columns that a record lacks.
    Of a table of versions there is also when a change was committed, `VALID_FROM`.
    """
    times = TIMES if table.holds_versions else ()
    parsed: list[Column | str] = [
        F.struct(*PLACE).alias(AT),
        F.col("value").isNull().alias("_tombstone"),
        parser.unreadable().alias("_unreadable"),
    ]
    typed = [*_typed_columns(table, parser, known), "_tombstone", "_v", "_v_malformed", "_unreadable"]
    faults = F.coalesce("_unreadable", *record_faults(table)).alias(FAULT)
    parts = (*table.columns, *map(missing, known), "_op", "_epoch", "_pos", "_offset", "_tombstone", ABSENT)
    result: list[Column | str] = [AT, *parts, *([VALID_FROM] if table.holds_versions else []), faults]
    return lambda raw: raw.select(*parsed, *parser.parsed(table, times)).select(*typed).select(*result)


def _typed_columns(table: CapturedTable, parser: RecordParser, known: Sequence[str]) -> list[Column | str]:
    after, types, mark = F.col("_v.after"), table.columns, placeholder()
    return [
        AT,
        *(typed(F.col("_k")[c], types[c], parser.form("k", c)).alias(c) for c in table.key),
        *(typed(after[c], types[c], parser.form("v", c), mark).alias(c) for c in table.payload),
        *(F.coalesce(is_unavailable(after[c], types[c], mark), F.lit(False)).alias(missing(c)) for c in known),
        F.when(~F.col("_tombstone"), F.col("_v.op")).alias("_op"),
        F.when(~F.col("_tombstone"), F.coalesce(_said_epoch().try_cast("bigint"), F.lit(0))).alias("_epoch"),
        _position().alias("_pos"),
        F.col(AT)["offset"].alias("_offset"),
        absent_columns(table, parser).alias(ABSENT),
        *([committed_at().alias(VALID_FROM)] if table.holds_versions else []),
    ]


def missing(column: str) -> str:
    """The column that tells whether a value was unavailable."""
    return f"_missing_{column}"


def committed_at() -> Column:
    """When a change was committed, in microseconds; null where the change event does not say."""
    us, ms = F.col("_v.source")["ts_us"], F.col("_v.source")["ts_ms"] * 1000
    ns = F.expr("_v.source.ts_ns div 1000")  # in whole numbers: `/` gives a double, which has fewer digits
    return F.coalesce(us, ns, ms)


def _is_change() -> Column:
    """Whether a record is a change of one row: with the row after it, and without where it was deleted."""
    op, leaves_none = F.col("_v.op"), F.col("_v")[FIELD_AFTER].isNull()
    fits = op.isin(*APPLIED) & ((op == OP_DELETE) == leaves_none) & ~F.col("_v_malformed")
    return F.coalesce(fits, F.lit(False))


def _said_epoch() -> Column:
    return F.col("_v")[FIELD_EPOCH]


def _position() -> Column:
    """The place in the source; a snapshot row's is moved below every streamed one's.

    A transaction that was open while the slot was made is streamed with lower LSNs than the snapshot's, and is newer.
    """
    streamed = F.when(~F.col("_tombstone"), F.coalesce(*places_in_source()))
    return F.when(_is_streamed(), streamed).otherwise(streamed - F.lit(BELOW_STREAMED))


def _is_streamed() -> Column:
    return F.coalesce(F.col("_v.source")["snapshot"], F.lit(STREAMED)) == STREAMED


def places_in_source() -> list[Column]:
    """Where a change stands in its source, the first that is not null."""
    source = F.col("_v.source")
    file = F.regexp_extract(source["file"], r"\.(\d+)$", 1).try_cast("bigint")
    binlog = F.shiftleft(file, BINLOG_BYTES) + source["pos"]
    # Rows of an incremental PostgreSQL snapshot have no LSN of their own, but the stream's at the time of the read.
    sequence = F.from_json(source["sequence"], "array<string>")
    seen = F.when(F.size(sequence) == F.lit(2), F.coalesce(F.get(sequence, F.lit(1)), F.lit("0")).try_cast("bigint"))
    return [source["lsn"], binlog, F.when(~_is_streamed(), seen)]


def record_faults(table: CapturedTable) -> Iterator[Column]:
    """Over typed columns, what may be wrong with a record; the first that is not null is its fault.

    A truncation has no key, and a message has another key: they are faults of their own.
    """
    mark, op, sent = placeholder(), F.col("_v.op"), ~F.col("_tombstone")
    yield F.when(sent & (op == OP_TRUNCATE), fault("truncated")).when(sent & (op == OP_MESSAGE), fault("message"))
    for c in table.key:
        yield F.when(F.col(c).isNull(), fault("bad_value", F.lit(c)))
    for c in table.payload:
        misfit = F.col(c).isNull() & is_sent(F.col("_v.after")[c], table.columns[c], mark)
        yield F.when(misfit, fault("bad_value", F.lit(c)))
    no_place = (_said_epoch().isNotNull() & _said_epoch().try_cast("bigint").isNull()) | F.col("_pos").isNull()
    yield F.when(sent & (~_is_change() | no_place), fault("bad_json"))
    if table.holds_versions:
        yield F.when(sent & F.col(VALID_FROM).isNull(), fault("no_source_time"))
        yield F.when(F.length(ABSENT) > 0, fault("column_absent_in_version", listed(F.col(ABSENT))))


def is_sent(text: Column, column: ColumnType, mark: Column) -> Column:
    """Whether there is a value: neither null nor unavailable."""
    sent = text.isNotNull() & is_value(text, column)
    return sent & ~is_unavailable(text, column, mark) if column.varies_in_length else sent


def absent_columns(table: CapturedTable, parser: RecordParser) -> Column:
    """Over parsed records: the names of columns that a row must have and lacks, "" where it lacks none.

    A parser gives null for them, as for a NULL that was sent. Only rows with a null are asked which of the two it is.
    A whole row pays a comparison for it.
    """
    names = table.never_absent
    if not names:
        return F.lit("")
    row, has_row = F.col("_v.after"), F.col("_v.op").isin(*_WITH_ROW)
    some_null = functools.reduce(operator.or_, (row[c].isNull() for c in names))
    return F.coalesce(F.when(has_row & some_null, parser.absent(names)), F.lit(""))


def is_absent(column: str) -> Column:
    """Whether a column is one of those in `ABSENT`."""
    return F.find_in_set(F.lit(column), F.col(ABSENT)) > 0


def listed(names: Column) -> Column:
    """The names as text for a message."""
    return F.replace(names, F.lit(","), F.lit(", "))


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
