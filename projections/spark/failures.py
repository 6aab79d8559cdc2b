"""Failures that Spark carries: raised inside the JVM with a place, reported to the user without a Java trace."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from eventstore.shown_urls import shown_url
from projections.errors import (
    CodeFailed,
    InvalidDefinition,
    PatternTooWide,
    ProjectionError,
    RealTimeRefused,
    SparkFailed,
    SparkStopped,
    UndecodableRecord,
    UnsupportedValue,
    not_unpacked,
    offsets_lost,
    pattern_too_wide,
    unsupported_value,
)
from projections.faults import record_error
from projections.spark.query_errors import python_cause, query_error

# Another in each process: a value that Spark quotes in a message of its own cannot pretend to be one of ours.
MARK: Final = f"factfold:{secrets.token_hex(8)}:"
_UNKNOWN_COLUMN = re.compile(
    r"with name `?([^`]+(?:`\.`[^`]+)*)`? cannot be resolved\. ?"
    r"(?:Did you mean one of the following\? ?\[([^\]]*)\])?"
)
_UNSUPPORTED_VALUE = re.compile(rf"^{UnsupportedValue.__module__}\.{UnsupportedValue.__name__}: (.*)$", re.M)
_TOO_WIDE = re.compile(rf"^{PatternTooWide.__module__}\.{PatternTooWide.__name__}: (.*)$", re.M)
_NO_SOURCE = re.compile(r"Failed to find data source: (\w+)")
_OFFSETS_LOST = re.compile(r"(OffsetOutOfRange|some data may have been (lost|aged out|missed))", re.I)
# What the JVM's client says of records whose batch it cannot read: the one names no offset.
_NOT_UNPACKED = re.compile(
    r"(?:exception when fetching the next record from|Record batch for partition) "
    r"(?P<topic>[\w.-]+)-(?P<partition>\d+)(?: at offset (?P<offset>\d+))?"
)
# A query, source or sink that Spark keeps out of its real-time mode; other errors of the mode are of its settings.
_NOT_REAL_TIME = re.compile(r"STREAMING_REAL_TIME_MODE\.(OPERATOR_OR_SINK|INPUT_STREAM|SINK)_NOT\w*")
PLACE: Final = ("topic", "partition", "offset")
AT: Final = "_place"  # the column with a decoded record's place: a table may have columns of the names above
FAULT: Final = "_fault"  # the column with a record's fault
_DETAIL_LENGTH: Final = 200
_FAULT_TYPE: Final = "struct<kind: string, detail: string>"


def refuse(kind: str, *details: Column, place: Mapping[str, Column] | None = None) -> Column:
    """A column that fails the query when it is evaluated, and names topic, partition and offset of the record.

    ``raise_error`` is native: a good record pays one comparison for it. ``place`` replaces the columns topic, partition
    and offset where records have been reduced to rows.
    """
    where = place or {name: F.col(name) for name in PLACE}
    report = F.struct(
        F.lit(kind).alias("kind"),
        *(column.alias(name) for name, column in where.items()),
        *(d.alias("detail") for d in details),
    )
    return F.raise_error(F.concat(F.lit(MARK), F.to_json(report)))


def refuse_fault(fault: Column) -> Column:
    """A column that fails the query as `refuse` does, with a record's `fault`."""
    place = [F.col(AT)[name].alias(name) for name in PLACE]
    report = F.struct(fault["kind"].alias("kind"), *place, fault["detail"].alias("detail"))
    return F.raise_error(F.concat(F.lit(MARK), F.to_json(report)))


def fault(kind: str, *details: Column) -> Column:
    """What `refuse` would raise, as a value: its kind and detail.

    The detail may be part of a broken record: what Arrow or PostgreSQL would refuse in a text is replaced, its end left
    away.
    """
    detail = (details[0] if details else F.lit(None)).cast("string")
    text = F.translate(F.make_valid_utf8(F.substring(detail, 1, _DETAIL_LENGTH)), "\0", "\ufffd")
    return F.struct(F.lit(kind).alias("kind"), text.alias("detail")).cast(_FAULT_TYPE)


def no_fault() -> Column:
    """Nothing is wrong."""
    return F.lit(None).cast(_FAULT_TYPE)


def described_each(faulty: DataFrame) -> DataFrame:
    """The places of records with a column `FAULT`, and what it says of each."""
    return faulty.select(*PLACE, f"{FAULT}.kind", f"{FAULT}.detail")


@contextlib.contextmanager
def described(place: str) -> Iterator[None]:
    """Turn what Spark raises inside the block into a typed error; ``place`` is used where Spark knows none."""
    from py4j.protocol import Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException

    place = shown_url(place)
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise translate(str(error), place) from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise SparkStopped(
            "Spark's JVM no longer answers",
            remedy="look for its end in the log. If its memory ran out, give --memory more. Then start again: a build "
            "looks first for a record that unpacks to too much",
            place=place,
        ) from error


def translate(message: str, place: str) -> ProjectionError:
    """The typed error behind a message of Spark's."""
    if MARK in message:
        # The record's own text may hold braces: the decoder knows where the JSON ends, a pattern does not.
        report, _ = json.JSONDecoder().raw_decode(message, message.index(MARK) + len(MARK))
        return _record_error(report)
    if refused_value := _UNSUPPORTED_VALUE.search(message):
        return unsupported_value(refused_value.group(1)[:400], place=place)
    if too_wide := _TOO_WIDE.search(message):
        return pattern_too_wide(too_wide.group(1)[:400], place=place)
    if error := query_error(message):
        kind, where = CodeFailed if error.of_code else SparkFailed, f"{place}, {error.where}" if error.where else place
        return kind(error.cause, remedy="correct the code, or the value that it does not expect", place=where)
    return _of_spark(message, place)


def _of_spark(message: str, place: str) -> ProjectionError:
    if refused := _NOT_REAL_TIME.search(message):
        return RealTimeRefused(
            f"Spark does not run this query in real-time mode: {_cause(message)[:200]}",
            remedy="use micro-batches for it",
            place=f"{place} ({refused.group()})",
        )
    if unknown := _UNKNOWN_COLUMN.search(message):
        known = (unknown.group(2) or "").replace("`", "") or "see the table's declaration"
        return InvalidDefinition(
            f"there is no column {unknown.group(1)!r}",
            remedy=f"did you mean: {known}",
            place=place,
            code="unknown-column",
        )
    if absent := _NO_SOURCE.search(message):
        return SparkFailed(
            f"Spark has no jar for {absent[1]!r}",
            remedy="pass jars=spark_jars(), for tables of Delta Lake [*spark_jars(), *delta_jars()], of factfold.stack",
            place=place,
        )
    if _OFFSETS_LOST.search(message):
        return offsets_lost(place)
    if packed := _NOT_UNPACKED.search(message):
        offset = int(packed["offset"]) if packed["offset"] else None
        return not_unpacked(packed[0], topic=packed["topic"], partition=int(packed["partition"]), offset=offset)
    cause = _cause(message)[:300]
    return SparkFailed(cause, remedy="see the cause above. The run can be started again as it is", place=place)


def _cause(message: str) -> str:
    """The line that names the cause: a Python worker's last exception, else Spark's first line."""
    first = next((line for line in message.splitlines() if line.strip()), "Spark failed")
    return python_cause(message) or first


def _record_error(report: dict[str, Any]) -> UndecodableRecord:
    place = f"topic {report['topic']}, partition {report['partition']}, offset {report['offset']}"
    return record_error(report["kind"], report.get("detail") or "", topic=report["topic"], place=place)
