"""Debezium's change events to columns, inside the JVM: the rules of `cdc.changes.change_event`, for JSON and for Avro.

Every column is read as text and turned into its declared type: a value that does not fit fails with its place, where a
typed ``from_json`` would quietly give null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

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
from projections.declaring.tables import BELOW_STREAMED, Table
from projections.spark.changes.parsers import RecordParser
from projections.spark.changes.semantic_types import FieldForm, is_value, typed
from projections.spark.changes.unavailable import is_unavailable, placeholder
from projections.spark.failures import refuse

if TYPE_CHECKING:
    from pyspark.sql import Column

APPLIED: Final = (OP_INSERT, OP_UPDATE, OP_SNAPSHOT, OP_DELETE)


def parsed_columns(table: Table, parser: RecordParser, *, times: Sequence[str] = ()) -> list[Column | str]:
    """The first projection over raw records; its columns are for `typed_columns` alone."""
    from pyspark.sql import functions as F

    place = [F.col("topic"), F.col("partition"), F.col("offset")]
    return [*place, F.col("value").isNull().alias("_tombstone"), *parser.parsed(table, times)]


def typed_columns(table: Table, parser: RecordParser, known: Sequence[str]) -> list[Column]:
    """The table's columns in their types, whether those ``known`` to vary are unavailable, operation and position."""
    from pyspark.sql import functions as F

    after, types, mark = F.col("v.after"), table.columns, placeholder()
    return [
        *(_required(F.col("k")[c], types[c], c, parser.form("k", c)).alias(c) for c in table.key),
        *(_cast(after[c], types[c], c, parser.form("v", c)).alias(c) for c in table.payload),
        *(F.coalesce(is_unavailable(after[c], types[c], mark), F.lit(False)).alias(missing(c)) for c in known),
        F.col("_tombstone"),
        _operation().alias("_op"),
        _epoch().alias("_epoch"),
        _position().alias("_pos"),
        F.col("offset").alias("_offset"),
    ]


def missing(column: str) -> str:
    """The column that tells whether a value was unavailable."""
    return f"_missing_{column}"


def _operation() -> Column:
    from pyspark.sql import functions as F

    known = F.when(is_change(), F.col("v.op"))
    return F.when(~F.col("_tombstone"), F.coalesce(known, no_row(refuse, otherwise=refuse("bad_json"))))


def is_change() -> Column:
    """Whether a record is a change of one row: with the row after it, and without where it was deleted."""
    from pyspark.sql import functions as F

    op, leaves_none = F.col("v.op"), F.col("v")[FIELD_AFTER].isNull()
    fits = op.isin(*APPLIED) & ((op == OP_DELETE) == leaves_none) & ~F.col("v_malformed")
    return F.coalesce(fits, F.lit(False))


def _epoch() -> Column:
    from pyspark.sql import functions as F

    said = F.col("v")[FIELD_EPOCH]
    epoch = F.coalesce(said.try_cast("bigint"), F.when(said.isNotNull(), refuse("bad_json").cast("bigint")), F.lit(0))
    return F.when(~F.col("_tombstone"), epoch)


def _position() -> Column:
    """The place in the source; a snapshot row's is moved below every streamed one's.

    A transaction that was open while the slot was made is streamed with lower LSNs than the snapshot's, and is newer.
    """
    from pyspark.sql import functions as F

    streamed = F.when(~F.col("_tombstone"), F.coalesce(*places_in_source(), refuse("bad_json").cast("bigint")))
    return F.when(_is_streamed(), streamed).otherwise(streamed - F.lit(BELOW_STREAMED))


def _is_streamed() -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.col("v.source")["snapshot"], F.lit(STREAMED)) == STREAMED


def places_in_source() -> list[Column]:
    """Where a change stands in its source, the first that is not null."""
    from pyspark.sql import functions as F

    source = F.col("v.source")
    file = F.regexp_extract(source["file"], r"\.(\d+)$", 1).try_cast("bigint")
    binlog = F.shiftleft(file, BINLOG_BYTES) + source["pos"]
    # Rows of an incremental PostgreSQL snapshot have no LSN of their own, but the stream's at the time of the read.
    sequence = F.from_json(source["sequence"], "array<string>")
    seen = F.when(F.size(sequence) == F.lit(2), F.coalesce(F.get(sequence, F.lit(1)), F.lit("0")).try_cast("bigint"))
    return [source["lsn"], binlog, F.when(~_is_streamed(), seen)]


def _required(text: Column, column: ColumnType, name: str, form: FieldForm | None) -> Column:
    from pyspark.sql import functions as F

    refused = no_row(refuse, otherwise=refuse("bad_value", F.lit(name)))
    return F.coalesce(typed(text, column, form), refused.cast(column.ddl))


def no_row(fault: Callable[[str], Column], *, otherwise: Column) -> Column:
    """The fault of a record that is no row change: a truncation has no key, and a message has another key."""
    from pyspark.sql import functions as F

    op = F.col("v.op")
    return F.when(op == OP_TRUNCATE, fault("truncated")).when(op == OP_MESSAGE, fault("message")).otherwise(otherwise)


def _cast(text: Column, column: ColumnType, name: str, form: FieldForm | None) -> Column:
    """The value, null where it is null or unavailable; one that does not fit fails the query.

    ``coalesce`` makes the value once; a test of it before it would make it twice.
    """
    from pyspark.sql import functions as F

    mark = placeholder()
    wrong = is_sent(text, column, mark)
    return F.coalesce(typed(text, column, form, mark), F.when(wrong, refuse("bad_value", F.lit(name)).cast(column.ddl)))


def is_sent(text: Column, column: ColumnType, mark: Column) -> Column:
    """Whether there is a value: neither null nor unavailable."""
    sent = text.isNotNull() & is_value(text, column)
    return sent & ~is_unavailable(text, column, mark) if column.varies_in_length else sent
