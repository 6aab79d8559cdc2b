"""Failures that Spark carries: raised inside the JVM with a place, reported to the user without a Java trace.

What Spark says of a query's error is given as logs and dead letters may have it: its kind and its place, and no value.

    [CAST_INVALID_INPUT] The value 'ann@example.org' of the type "STRING" cannot be …   → '***'
    ValueError: no such person: Ann                                                     → ValueError
"""

from __future__ import annotations

import builtins
import contextlib
import json
import re
import secrets
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from eventstore.delivery.source import MASK
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

_LENGTH: Final = 300
# SQL's classes of errors that a value causes; of those that are not of its type, the text may be any value's.
_DATA_ERROR: Final = re.compile(r"\[([A-Z][\w.]*)\] (.*?)SQLSTATE: (22\w{3}|23\w{3}|P0001)\b", re.S)
_OF_TYPE: Final = "22"
_FREE_TEXT: Final = re.compile(r": (?!\s).*?(?=\.\s|$)", re.S)
_QUOTE: Final = re.compile(r"(?<!\w)'")
_NUMBER: Final = re.compile(r'(?P<type>"[^"]*"|\bdecimal\([\d, -]+\))|(?<![\w.])-?\d[\w.:+-]*(?<![.:])', re.I)

_DATAFRAME: Final = re.compile(r"^== DataFrame ==\n(\"[^\n]*\") was called from\n([^\n]+)", re.M)
_LINE: Final = re.compile(r"(\.py|<[^>]*>):\d+$|^line \d+ in cell")
_SQL: Final = re.compile(r"^== SQL[^\n]*\(line (\d+), position (\d+)\) ==\n([^\n]*)\n( *)(\^+)", re.M)

# A traceback that Python printed, and the class of what was raised; lines that belong to it are indented.
_TRACEBACK: Final = re.compile(r"^Traceback \(most recent call last\):\n((?:[ ]+[^\n]*\n)*)([^\W\d][\w.]*)(.*)$", re.M)
_FRAME: Final = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.M)
_SYSTEM_ERRORS: Final = frozenset(
    name for name, e in vars(builtins).items() if isinstance(e, type) and issubclass(e, OSError)
)
_OURS: Final = ("projections.", "eventstore.", "cdc.")  # typed: a database that does not answer, a key that is away
# Modules whose texts quote values only where `masked` sees them.
_KNOWN: Final = (*_OURS, "pyspark.", "pyarrow.")
_ROOT: Final = Path(__file__).parents[2]
_NO_USERS: Final = (
    sysconfig.get_paths()["stdlib"],
    *(str(_ROOT / package) + "/" for package in ("projections", "eventstore", "cdc", "factfold")),
)
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
_SPARKS_OWN = re.compile(r"^\[[A-Z_.]+\] | SQLSTATE: .*")  # around what its errors say
PLACE: Final = ("topic", "partition", "offset")
AT: Final = "_place"  # the column with a decoded record's place: a table may have columns of the names above
FAULT: Final = "_fault"  # the column with a record's fault
_DETAIL_LENGTH: Final = 200
_FAULT_TYPE: Final = "struct<kind: string, detail: string>"


class QueryError(NamedTuple):
    """An error that a value or code caused; one `of_code`, or of a value that is not of its type, comes again."""

    cause: str
    where: str | None
    of_code: bool = True


def query_error(message: str) -> QueryError | None:
    """Return what may be shown of an error that a value or the user's code causes; None for one that may pass."""
    if data_error := _DATA_ERROR.search(message):
        return QueryError(
            _data_cause(data_error), _called_from(message[data_error.end() :]), data_error[3].startswith(_OF_TYPE)
        )
    raised = _raised(message)
    if raised is None or raised[2] in _SYSTEM_ERRORS or raised[2].startswith(_OURS):
        return None
    return QueryError(python_cause(message) or "", _user_frame(raised[1]))


def python_cause(message: str) -> str | None:
    """Return the class of the last exception that Python code raised, its text where that is not the user's."""
    raised = _raised(message)
    if raised is None:
        return None
    kind, text = raised[2], raised[3].removeprefix(":").strip()
    if kind.startswith("projections."):
        return f"{kind}: {text}"[:_LENGTH]  # raised at the database, whose errors leave the values out
    is_shown = text and (kind in _SYSTEM_ERRORS or kind.startswith(_KNOWN))
    return f"{kind}: {masked(text)}"[:_LENGTH] if is_shown else kind


def masked(text: str) -> str:
    """Return a text without what may be values: all between its quotes, and numbers that are not of a type."""
    if opened := _QUOTE.search(text):
        first, last = opened.start(), text.rfind("'")
        text = f"{text[:first]}'{MASK}'{text[last + 1 :] if last > first else ''}"
    return _NUMBER.sub(lambda match: match["type"] or MASK, text)


def _data_cause(data_error: re.Match[str]) -> str:
    condition, text, state = data_error.groups()
    if not state.startswith(_OF_TYPE):
        return f"[{condition}] SQLSTATE: {state}"
    shown = " ".join(_FREE_TEXT.sub(f": {MASK}", masked(text)).split())
    return f"[{condition}] {shown[:_LENGTH]} SQLSTATE: {state}"


def _called_from(context: str) -> str | None:
    """The line of the user's that the expression is in, of what stands behind Spark's message."""
    if match := _DATAFRAME.search(context):
        site = match[2].strip()  # a session that notes no lines has a call of the JVM there
        return f"{site}: {match[1]}" if _LINE.search(site) else match[1]
    if match := _SQL.search(context):
        start = len(match[4])
        return f"SQL line {match[1]}, position {match[2]}: {match[3][start : start + len(match[5])]}"
    return None


def _raised(message: str) -> re.Match[str] | None:
    last = None
    for last in _TRACEBACK.finditer(message):  # noqa: B007 - the last one is what was raised in the end
        pass
    return last


def _user_frame(frames: str) -> str | None:
    """The innermost line that is the user's; where none is, the innermost."""
    entries = list(_frames(frames))
    own = [frame for frame in entries if not _is_library(frame[0])]
    if not entries:
        return None
    path, line, function = (own or entries)[-1]
    return f"{path}:{line}: {function}"


def _frames(frames: str) -> Iterator[tuple[str, str, str]]:
    yield from ((match[1], match[2], match[3].strip()) for match in _FRAME.finditer(frames))


def _is_library(path: str) -> bool:
    return "/site-packages/" in path or "/pyspark.zip/" in path or path.startswith(("<", *_NO_USERS))


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


@contextlib.contextmanager
def analysed(view: str, place: str) -> Iterator[None]:
    """Say of a query that Spark cannot analyse that its definition is wrong: to start again would change nothing."""
    try:
        with described(f"view {view}"):
            yield
    except SparkFailed as failed:
        if not isinstance(failed.__cause__, AnalysisException):
            raise
        cause = _SPARKS_OWN.sub("", failed.message)
        raise InvalidDefinition(
            f"Spark cannot read view {view!r}: {cause}", remedy="correct its query", place=place
        ) from failed


def translate(message: str, place: str) -> ProjectionError:
    """The typed error behind a message of Spark's."""
    if (report := _report(message)) is not None:
        return _record_error(report)
    if refused_value := _UNSUPPORTED_VALUE.search(message):
        return unsupported_value(refused_value.group(1)[:400], place=place)
    if too_wide := _TOO_WIDE.search(message):
        return pattern_too_wide(too_wide.group(1)[:400], place=place)
    if error := query_error(message):
        kind, where = CodeFailed if error.of_code else SparkFailed, f"{place}, {error.where}" if error.where else place
        return kind(error.cause, remedy="correct the code, or the value that it does not expect", place=where)
    return _of_spark(message, place)


def _report(message: str) -> dict[str, Any] | None:
    """What a decoder says of a record; a plan in a message of Spark's has the mark alone."""
    for mark in re.finditer(re.escape(MARK), message):
        with contextlib.suppress(json.JSONDecodeError):
            # The record's own text may hold braces: the decoder knows where the JSON ends, a pattern does not.
            report, _ = json.JSONDecoder().raw_decode(message, mark.end())
            return dict(report)
    return None


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
