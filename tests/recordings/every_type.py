"""A column of every type that PostgreSQL has for a service, the values written to it, and what each must decode to.

The expected values are written by hand next to the SQL, so that a decoder is held against something that is no decoder.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    Double,
    Float,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    Text,
    Time,
    Uuid,
)
from sqlalchemy import Enum as SqlEnum
from sqlalchemy.dialects import postgresql as pg


class Mood(Enum):
    """An enum of the service, whose names are the database's labels."""

    calm = "calm"
    cross = "cross"


@dataclass(frozen=True)
class Value:
    """What was written, as SQL, and what it must decode to; ``refused`` says that no Python value can hold it."""

    sql: str
    python: Any = None
    refused: bool = False


@dataclass(frozen=True)
class TypeCase:
    """One column: its type in the database and in the declared table, and its value in each row, by the row's name."""

    name: str
    ddl: str
    type: Any
    values: Mapping[str, Value] = field(default_factory=dict)


def _case(name: str, ddl: str, kind: Any, **values: tuple[str, Any]) -> TypeCase:
    return TypeCase(name, ddl, kind, {row: _value(*value) for row, value in values.items()})


def _value(sql: str, python: Any) -> Value:
    return Value(sql, refused=True) if python is REFUSED else Value(sql, python)


UTC = dt.UTC
# PostgreSQL has times that Python has not, among them these two: they become Python's last and first.
LAST = dt.datetime.max
FIRST = dt.datetime.min
REFUSED = object()

CASES = (
    _case("small", "smallint", SmallInteger, usual=("7", 7), low=("-32768", -32768)),
    _case("whole", "integer", Integer, usual=("70000", 70000), low=("-2147483648", -2147483648)),
    # Beyond 2^53 a JSON number read as a double is another one.
    _case("big", "bigint", BigInteger, usual=("9007199254740993", 9007199254740993), low=("-1", -1)),
    _case("flag", "boolean", Boolean, usual=("true", True), low=("false", False)),
    _case("single", "real", Float, usual=("1.5", 1.5), low=("-0.25", -0.25)),
    _case("ratio", "double precision", Double, usual=("0.1", 0.1), low=("-1e-300", -1e-300),
          high=("'Infinity'", float("inf")), odd=("'NaN'", float("nan"))),
    _case("amount", "numeric(12,2)", Numeric(12, 2), usual=("12.50", Decimal("12.50")),
          low=("-0.01", Decimal("-0.01")), high=("9999999999.99", Decimal("9999999999.99"))),
    _case("digits", "numeric(30,10)", Numeric(30, 10), usual=("12345678901234567890.0123456789",
          Decimal("12345678901234567890.0123456789")), low=("-1", Decimal(-1))),
    _case("free", "numeric", Numeric(38, 14), usual=("3.14159265358979", Decimal("3.14159265358979")),
          low=("-100", Decimal(-100)), high=("123456789012", Decimal(123456789012)), odd=("'NaN'", Decimal("NaN"))),
    _case("price", "money", Numeric(19, 2), usual=("12.50", Decimal("12.50")), low=("-0.01", Decimal("-0.01"))),
    _case("name", "text", Text, usual=("'Ann'", "Ann"), low=("''", ""), high=("'{\"ü\": \"\\\"😀'", '{"ü": "\\"😀')),
    _case("code", "char(5)", String(5), usual=("'ab'", "ab   ")),
    _case("short", "varchar(20)", String(20), usual=("'ab'", "ab"), low=("'null'", "null")),
    _case("raw", "bytea", LargeBinary, usual=(r"'\x00ff'", b"\x00\xff"), low=("''", b"")),
    _case("born", "date", Date, usual=("'1980-02-29'", dt.date(1980, 2, 29)),
          low=("'0001-01-01'", dt.date(1, 1, 1)), high=("'9999-12-31'", dt.date(9999, 12, 31)),
          odd=("'1899-12-31'", dt.date(1899, 12, 31)),
          endless=("'infinity'", dt.date.max), beginless=("'-infinity'", dt.date.min)),
    _case("moment", "timestamp", DateTime, usual=("'2024-01-02 03:04:05.678901'",
          dt.datetime(2024, 1, 2, 3, 4, 5, 678901)), low=("'0001-01-01'", FIRST),
          high=("'9999-12-31 23:59:59.999999'", LAST),
          odd=("'1969-12-31 23:59:59.999999'", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
          endless=("'infinity'", LAST), beginless=("'-infinity'", FIRST)),
    _case("moment3", "timestamp(3)", DateTime, usual=("'2024-01-02 03:04:05.678'",
          dt.datetime(2024, 1, 2, 3, 4, 5, 678000)), odd=("'1969-12-31 23:59:59.999'",
          dt.datetime(1969, 12, 31, 23, 59, 59, 999000)), endless=("'infinity'", LAST)),
    _case("seen", "timestamptz", DateTime(timezone=True), usual=("'2024-01-02 03:04:05.678901+02'",
          dt.datetime(2024, 1, 2, 1, 4, 5, 678901, UTC)), odd=("'1969-12-31 23:59:59.999999Z'",
          dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)), endless=("'infinity'", LAST.replace(tzinfo=UTC)),
          beginless=("'-infinity'", FIRST.replace(tzinfo=UTC))),
    _case("alarm", "time", Time, usual=("'03:04:05.678901'", dt.time(3, 4, 5, 678901)),
          low=("'00:00'", dt.time(0)), high=("'23:59:59.999999'", dt.time(23, 59, 59, 999999)),
          odd=("'24:00'", REFUSED)),
    _case("alarm3", "time(3)", Time, usual=("'03:04:05.678'", dt.time(3, 4, 5, 678000))),
    _case("alarmz", "timetz", Time(timezone=True), usual=("'03:04:05.678901+02'",
          dt.time(1, 4, 5, 678901, UTC))),
    _case("span", "interval", Interval, usual=("'1 day 02:03:04.5'",
          dt.timedelta(days=1, hours=2, minutes=3, seconds=4.5)), low=("'-00:00:00.000001'",
          dt.timedelta(microseconds=-1)), odd=("'1 month'", REFUSED)),
    _case("uid", "uuid", Uuid, usual=("'A1B2C3D4-0000-4000-8000-000000000001'",
          UUID("a1b2c3d4-0000-4000-8000-000000000001"))),
    _case("doc", "json", pg.JSON, usual=("'{\"a\": [1, null]}'", {"a": [1, None]}), low=("'null'", None),
          high=("'\"text\"'", "text")),
    _case("docb", "jsonb", pg.JSONB, usual=("'{\"a\": [1, null]}'", {"a": [1, None]}), low=("'[]'", [])),
    _case("mood", "mood", SqlEnum(Mood), usual=("'calm'", Mood.calm), low=("'cross'", Mood.cross)),
    _case("bit1", "bit(1)", pg.BIT(1), usual=("B'1'", "1"), low=("B'0'", "0")),
    _case("bits", "bit(10)", pg.BIT(10), usual=("B'1000000011'", "1000000011"), low=("B'0000000000'", "0000000000")),
    _case("vbits", "bit varying(12)", pg.BIT(12, varying=True), usual=("B'101'", REFUSED)),
    _case("address", "inet", pg.INET, usual=("'10.0.0.1/24'", "10.0.0.1/24")),
    _case("net", "cidr", pg.CIDR, usual=("'10.0.0.0/24'", "10.0.0.0/24")),
    _case("mac", "macaddr", pg.MACADDR, usual=("'08:00:2b:01:02:03'", "08:00:2b:01:02:03")),
    _case("span4", "int4range", Text, usual=("'[1,5)'", "[1,5)")),
    _case("words", "tsvector", Text, usual=("'a b'", "'a' 'b'")),
    _case("number", "oid", pg.OID, usual=("4000000000", 4000000000)),
    _case("ints", "integer[]", ARRAY(Integer), usual=("'{1,NULL,-3}'", [1, None, -3]), low=("'{}'", [])),
    _case("texts", "text[]", ARRAY(Text), usual=("'{a,NULL,\"b,\\\"c\"}'", ["a", None, 'b,"c'])),
    _case("amounts", "numeric(10,2)[]", ARRAY(Numeric(10, 2)), usual=("'{1.50,-2}'", [Decimal("1.50"), Decimal(-2)])),
    _case("days", "date[]", ARRAY(Date), usual=("'{1980-02-29}'", [dt.date(1980, 2, 29)])),
    _case("moments", "timestamp[]", ARRAY(DateTime), usual=("'{2024-01-02 03:04:05.678901}'",
          [dt.datetime(2024, 1, 2, 3, 4, 5, 678901)])),
    _case("seens", "timestamptz[]", ARRAY(DateTime(timezone=True)), usual=("'{2024-01-02 03:04:05.678901+02}'",
          [dt.datetime(2024, 1, 2, 1, 4, 5, 678901, UTC)])),
    _case("flags", "boolean[]", ARRAY(Boolean), usual=("'{t,f,NULL}'", [True, False, None])),
    _case("uids", "uuid[]", ARRAY(Uuid), usual=("'{a1b2c3d4-0000-4000-8000-000000000001}'",
          [UUID("a1b2c3d4-0000-4000-8000-000000000001")])),
    _case("moods", "mood[]", ARRAY(SqlEnum(Mood)), usual=("'{calm,cross}'", [Mood.calm, Mood.cross])),
    _case("docs", "jsonb[]", ARRAY(pg.JSONB), usual=("ARRAY['{\"a\": 1}'::jsonb]", [{"a": 1}])),
)  # fmt: skip

ROWS = ("usual", "low", "high", "odd", "endless", "beginless", "nothing")

TABLE = Table(
    "every_type",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("row", Text),
    *(Column(case.name, case.type) for case in CASES),
    schema="public",
)


def create_statements() -> list[str]:
    """The DDL of the table."""
    columns = ", ".join(f"{case.name} {case.ddl}" for case in CASES)
    return [
        "CREATE TYPE mood AS ENUM ('calm', 'cross')",
        f'CREATE TABLE public.every_type (id integer PRIMARY KEY, "row" text, {columns})',
    ]


def insert_statements(first_id: int) -> list[str]:
    """One row for each of ROWS, numbered from ``first_id``; what a column has no such value of is null."""
    return [_insert(first_id + number, row) for number, row in enumerate(ROWS)]


def _insert(number: int, row: str) -> str:
    written = {case.name: case.values[row].sql for case in CASES if row in case.values}
    columns = ", ".join(["id", '"row"', *written])
    return (
        f"INSERT INTO public.every_type ({columns}) VALUES ({', '.join([str(number), repr(row), *written.values()])})"
    )
