"""Columns of captured tables whose values Debezium 3.7 changes or loses: which they are, and what helps.

Seen on a live server, in each encoding. A column that the connector leaves out (`column.exclude.list`) has no finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cdc.connectors.encodings import AVRO_CONVERTER
from cdc.findings import Finding, Severity
from cdc.identifiers import TableName, quoted
from cdc.source.catalogue import ColumnFacts, column_facts, is_readable

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cdc.connectors.postgres_connector import PostgresConnector

_EXCLUDED: Final = "column.exclude.list"
_INCLUDED: Final = "column.include.list"
_MILLISECONDS: Final = 3
# How many rows are looked at for a value that no catalogue tells of; arrays may be stored apart, and each is read.
_ROWS: Final = 100_000
_ROWS_OF_ARRAYS: Final = 1_000
_LITERAL = re.compile(r"'(?P<text>(?:[^']|'')*)'(?:::.*)?", re.DOTALL)
# The driver's calendar is the Julian one before 15 October 1582, and has neither eras nor the days that were left out.
_ODD_DATE: Final = "isfinite({0}) AND ({0} < '0001-01-01' OR {0} BETWEEN '1582-10-05' AND '1582-10-14')"
_ODD_ITEMS: Final = {
    "date": _ODD_DATE,
    "timestamp": "isfinite({0}) AND {0} < '1582-10-15'",
    "timestamptz": "isfinite({0}) AND ({0} < '0001-01-01+00' OR {0} >= '1582-10-05+00' AND {0} < '1582-10-15+00')",
}


@dataclass(frozen=True, slots=True)
class _Fault:
    """What happens to the values of the columns that it concerns, and the remedy for one of them.

    ``asks`` is the condition, as SQL, that a row's value must fulfil; without it the type alone is the fault.
    """

    concerns: Callable[[ColumnFacts], bool]
    result: str
    remedy: str
    severity: Severity = Severity.ERROR
    asks: Callable[[ColumnFacts], str] | None = None


def _has_odd_items(column: ColumnFacts) -> str:
    return f"EXISTS (SELECT FROM unnest({column.quoted}) item WHERE {_ODD_ITEMS[column.type].format('item')})"


_NESTED: Final = "arrays of more than one dimension arrive without their values"
_FAULTS: Final = (
    _Fault(
        lambda column: column.is_array and column.dimensions > 1,
        _NESTED,
        "ALTER TABLE {table} ALTER {column} TYPE jsonb USING to_jsonb({column})",
    ),
    _Fault(
        lambda column: column.is_array and column.dimensions <= 1,
        _NESTED,
        "store one dimension, and ALTER TABLE {table} ADD CHECK (array_ndims({column}) = 1)",
        asks=lambda column: f"array_ndims({column.quoted}) > 1",
    ),
    _Fault(
        lambda column: column.is_array and column.type == "bit",
        "arrays of bits arrive as null",
        "ALTER TABLE {table} ALTER {column} TYPE text[]",
    ),
    _Fault(
        lambda column: column.is_array and column.type == "time" and not 0 <= column.modifier <= _MILLISECONDS,
        "times of day in an array arrive without their microseconds",
        "ALTER TABLE {table} ALTER {column} TYPE time(3)[]",
    ),
    _Fault(
        lambda column: not column.is_array and column.type == "name",
        "streamed values of type name arrive as null",
        "ALTER TABLE {table} ALTER {column} TYPE text",
    ),
    _Fault(
        lambda column: column.is_array and column.type in _ODD_ITEMS,
        "dates and times of 1582 or before in an array arrive as others",
        "ALTER TABLE {table} ALTER {column} TYPE text[]",
        asks=_has_odd_items,
    ),
    _Fault(
        lambda column: not column.is_array and column.type == "date",
        "a snapshot reads dates before year 1, and from 5 to 14 October 1582, as others",
        "let the stream repeat them after each snapshot: UPDATE {table} SET {column} = {column} WHERE {condition}",
        Severity.WARNING,
        asks=lambda column: _ODD_DATE.format(column.quoted),
    ),
    _Fault(
        lambda column: column.is_array and column.type == "timestamp",
        "timestamps in an array arrive changed where the worker's time zone left them out, at a start of summer time",
        "run the Kafka Connect worker with TZ=UTC and disregard this, or ALTER TABLE {table} ALTER {column} TYPE "
        "timestamptz[]",
        Severity.WARNING,
    ),
)
_IN_AVRO: Final = _Fault(
    lambda column: _is_braces(column),
    "Apicurio's registry does not return an Avro schema that has a DEFAULT '{}'",
    "capture with encoding=PlainJson() or JsonWithSchemas(), or ALTER TABLE {table} ALTER {column} DROP DEFAULT",
)


def _is_braces(column: ColumnFacts) -> bool:
    """Whether a column's default is `{}` in a schema; Debezium writes that for JSON that it does not evaluate, too."""
    if column.is_array or column.default is None:
        return False
    literal = _LITERAL.fullmatch(column.default)
    if literal is None:
        return column.type in ("json", "jsonb")
    return literal["text"] == "{}" or (column.type == "hstore" and not literal["text"])


def column_findings(connection: Connection, table: TableName, connector: PostgresConnector) -> Iterator[Finding]:
    """Look at the columns that a connector captures of a table, and at the values in some of its rows."""
    config = connector.config()
    columns = captured_columns(column_facts(connection, table), table, config)
    yield from of_columns(columns, table, config)
    if is_readable(connection, table):
        yield from of_values(columns, table, lambda condition, rows: _holds(connection, table, condition, rows))


def _holds(connection: Connection, table: TableName, condition: str, rows: int) -> bool:
    # Names are quoted, and all else is ours.
    query = f"SELECT coalesce(bool_or({condition}), false) FROM (SELECT * FROM {table.quoted} LIMIT {rows}) AS found"  # noqa: S608
    return bool(connection.exec_driver_sql(query.replace("%", "%%")).scalar_one())


def captured_columns(
    columns: Sequence[ColumnFacts], table: TableName, config: Mapping[str, str]
) -> tuple[ColumnFacts, ...]:
    """Return the columns that a configuration does not leave out."""
    included, excluded = config.get(_INCLUDED), config.get(_EXCLUDED, "")
    return tuple(
        column
        for column in columns
        if not _lists(excluded, f"{table}.{column.name}")
        and (included is None or _lists(included, f"{table}.{column.name}"))
    )


def _lists(patterns: str, name: str) -> bool:
    """Whether one of Debezium's patterns is of the whole name; they disregard case."""
    return any(re.fullmatch(pattern.strip(), name, re.IGNORECASE) for pattern in patterns.split(","))


def of_columns(columns: Sequence[ColumnFacts], table: TableName, config: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the types and the defaults of captured columns."""
    in_avro = AVRO_CONVERTER in (config.get("key.converter"), config.get("value.converter"))
    for fault in (*_FAULTS, *([_IN_AVRO] if in_avro else [])):
        if fault.asks is None:
            yield from _finding(fault, [column for column in columns if fault.concerns(column)], table)


def of_values(columns: Sequence[ColumnFacts], table: TableName, holds: Callable[[str, int], bool]) -> Iterator[Finding]:
    """Look at the values of captured columns; ``holds`` says of a condition if one of so many rows fulfils it."""
    for fault in _FAULTS:
        if fault.asks is not None:
            asked = {column: fault.asks(column) for column in columns if fault.concerns(column)}
            faulty = [one for one, is_so in asked.items() if holds(is_so, _ROWS_OF_ARRAYS if one.is_array else _ROWS)]
            yield from _finding(fault, faulty, table, condition=asked[faulty[0]] if faulty else "")


def _finding(
    fault: _Fault, columns: Sequence[ColumnFacts], table: TableName, *, condition: str = ""
) -> Iterator[Finding]:
    if columns:
        names = ", ".join(f"{column.name} {column.written}" for column in columns)
        excluded = ",".join(f"{table}.{column.name}" for column in columns)
        remedy = fault.remedy.format(table=table.quoted, column=columns[0].quoted, condition=condition)
        remedy = f"{remedy}; or leave it out with extra={{'{_EXCLUDED}': '{excluded}'}}"
        yield Finding(fault.severity, f"table {table}", f"{fault.result}: {names} of {table}", remedy)


_OF_PRODUCERS: Final = re.compile(
    r"The message is (\d+) bytes when serialized which is larger than (\d+), "
    r"which is the value of the ([\w.]+) configuration"
)
_OF_TOPICS: Final = "larger than the max message size the server will accept"
_POSTGRES: Final = "io.debezium.connector.postgresql.PostgresConnector"
_TABLES_INCLUDED: Final = ("table.include.list", "collection.include.list")
_SIGNALS: Final = "signal.data.collection"
_MOST: Final = 5
# By its text and not by its stored size, which is compressed.
_SEARCH: Final = (
    "find it: SELECT octet_length(t::text) AS bytes, left(t::text, 60) FROM {table} t ORDER BY bytes DESC LIMIT 3"
)


@dataclass(frozen=True, slots=True)
class OversizedRow:
    """What a trace says of it: a producer's setting, with sizes in bytes; ``limit`` None where its topic refuses it."""

    setting: str
    size: int | None = None
    limit: int | None = None

    @classmethod
    def of(cls, trace: str) -> OversizedRow | None:
        """Read a task's trace; None where it failed for another reason."""
        if match := _OF_PRODUCERS.search(trace):
            return cls(match[3], int(match[1]), int(match[2]))
        return cls("max.message.bytes") if _OF_TOPICS in trace else None

    @property
    def remedy(self) -> str:
        """The setting to raise, for a connector and for a worker that lets no connector change it."""
        if self.size is None:
            return "raise max.message.bytes of the topic, then factfold cdc apply"
        enough = 1 << self.size.bit_length()
        return (
            f"raise {self.setting} to {enough} (extra={{'producer.override.{self.setting}': '{enough}'}}, or "
            f"producer.{self.setting} in a worker that refuses overrides) and max.message.bytes of the topic, then "
            "factfold cdc apply"
        )

    def message(self, tables: list[str]) -> str:
        """Say what is too large, and for what."""
        named = f"a row of {'one of ' if len(tables) > 1 else ''}{_some(tables)}" if tables else "a record"
        if self.limit is None or self.size is None:
            return f"{named} is larger than its topic takes"
        return f"{named} is {self.size:,} bytes as a record, and {self.setting} is {self.limit:,}"


def advice_on(trace: str, config: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a trace says of a row that no request takes, how to find the row, and what helps."""
    row = OversizedRow.of(trace)
    if row is None:
        return ()
    tables = tables_of(config)
    searches = _searches(tables) if config.get("connector.class") == _POSTGRES else ()
    return (row.message(tables), *searches, f"remedy: {row.remedy}")


def tables_of(config: Mapping[str, str]) -> list[str]:
    """Return the tables that a configuration captures, without the backslashes that make them patterns."""
    patterns = [one.strip() for name in _TABLES_INCLUDED for one in config.get(name, "").split(",")]
    names = [re.sub(r"\\(.)", r"\1", one) for one in patterns if one]
    return [name for name in names if name != config.get(_SIGNALS)]


def _searches(tables: list[str]) -> Iterator[str]:
    for name in tables[:_MOST]:
        table = ".".join(map(quoted, name.split(".")))
        yield _SEARCH.format(table=table)


def _some(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
