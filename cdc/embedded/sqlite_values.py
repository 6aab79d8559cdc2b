"""Columns of a SQLite table as JSON text, by SQL: the forms that Debezium gives them under our connectors' settings.

SQLite keeps what it is given, whatever the column says. A value that is not of the column's type goes out as the text
it is, and the reader refuses it with its place; a trigger never makes the user's own statement fail.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from cdc.changes.column_types import python_type_of
from cdc.errors import UnsupportedEncoding

if TYPE_CHECKING:
    from sqlalchemy import Column

Expression = Callable[[str], str]

# SQLAlchemy hands SQLite a Decimal as a double, which keeps 15 digits and no more.
_DOUBLE_DIGITS: Final = 15


def json_of(column: Column[Any]) -> Expression:
    """Return what turns a column's SQL into SQL of its JSON text, never null; UnsupportedEncoding for other types."""
    kind: Any = column.type
    name = str(kind.__visit_name__)
    if name.lower() == "uuid":
        return _uuid
    if name in ("JSON", "JSONB"):
        return _text
    python_type = python_type_of(kind)
    if python_type is not None and python_type in _ZONED and kind.timezone:
        return _zoned(column, python_type)
    if python_type is Decimal:
        return _decimal(column)
    if isinstance(python_type, type) and issubclass(python_type, Enum):
        return _text
    expression = _EXPRESSIONS.get(python_type) if python_type else None
    if expression is None:
        raise _unsupported(
            column, "which has no form in a trigger's JSON", "leave the column out of the captured table"
        )
    return expression


def _unsupported(column: Column[Any], why: str, remedy: str) -> UnsupportedEncoding:
    return UnsupportedEncoding(f"column {column} has type {column.type!r}, {why}", remedy=remedy, place=str(column))


def _text(x: str) -> str:
    return f"json_quote(CAST({x} AS TEXT))"


def _whole(x: str) -> str:
    return f"CASE typeof({x}) WHEN 'integer' THEN CAST({x} AS TEXT) ELSE {_text(x)} END"


def _flag(x: str) -> str:
    return f"CASE {x} WHEN 1 THEN 'true' WHEN 0 THEN 'false' ELSE {_text(x)} END"


def _number(x: str) -> str:
    """Seventeen digits name a double exactly; JSON has no infinity."""
    finite = f"typeof({x}) IN ('real', 'integer') AND abs({x}) < 9e999"
    return (
        f"CASE WHEN {finite} THEN printf('%!.17g', {x})"
        f" WHEN {x} = 9e999 THEN '\"Infinity\"' WHEN {x} = -9e999 THEN '\"-Infinity\"' ELSE {_text(x)} END"
    )


def _decimal(column: Column[Any]) -> Expression:
    kind: Any = column.type
    digits, scale = kind.precision, kind.scale or 0
    if kind.__visit_name__.lower() not in ("numeric", "decimal") or digits is None or digits > _DOUBLE_DIGITS:
        raise _unsupported(
            column,
            "and SQLite would keep no more than 15 of its digits",
            "declare Numeric(15, 4) or fewer digits, or keep the table in PostgreSQL",
        )

    def text(x: str) -> str:
        plain = f"""'"' || printf('%.{scale:d}f', {x}) || '"'"""
        return f"CASE WHEN typeof({x}) IN ('real', 'integer') THEN {plain} ELSE {_text(x)} END"

    return text


def _zoned(column: Column[Any], python_type: type) -> Expression:
    """Refuse a type that writes 12:00+02:00 as 12:00, as those of SQLAlchemy do on SQLite."""
    expression, sample = _ZONED[python_type]
    from eventstore.backends.sql.utc_times import read_back  # SQLAlchemy is loaded when it is first used

    if read_back(column.type, sample) not in (sample, None):
        raise _unsupported(
            column,
            "which loses the offset of its values on SQLite",
            "declare the column as cdc.UtcDateTime(), which stores UTC"
            if python_type is datetime
            else "declare the column as Text or as Time without time zone",
        )
    return expression


def _moment(x: str) -> str:
    """SQLAlchemy writes a date and a time without zone; Debezium puts a T between, and a Z behind."""
    return f"json_quote({_with_t(x)} || 'Z')"


def _zoned_moment(x: str) -> str:
    """A time that has no offset is UTC; one that has keeps it."""
    return f"json_quote({_with_t(x)} || {_z_unless_offset(x, first=11)})"


def _zoned_time(x: str) -> str:
    return f"json_quote(CAST({x} AS TEXT) || {_z_unless_offset(x, first=1)})"


def _with_t(x: str) -> str:
    return f"replace(CAST({x} AS TEXT), ' ', 'T')"


def _z_unless_offset(x: str, *, first: int) -> str:
    return f"CASE WHEN substr(CAST({x} AS TEXT), {first}) GLOB '*[-+Zz]*' THEN '' ELSE 'Z' END"


def _day(x: str) -> str:
    return f"json_quote(CAST({x} AS TEXT) || 'Z')"


def _uuid(x: str) -> str:
    return f"CASE WHEN length({x}) = 32 THEN json_quote({dashed(x)}) ELSE {_text(x)} END"


def dashed(x: str) -> str:
    """Return SQL of the text of a UUID, of which SQLAlchemy writes the 32 digits."""
    parts = " || '-' || ".join(f"substr({x}, {start}, {length})" for start, length in _UUID_PARTS)
    return f"lower({parts})"


_UUID_PARTS: Final = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
_EAST: Final = timezone(timedelta(hours=2))
_ZONED: Final[dict[type | None, tuple[Expression, Any]]] = {
    datetime: (_zoned_moment, datetime(2024, 1, 2, 3, 4, 5, 6, _EAST)),
    time: (_zoned_time, time(3, 4, 5, 6, _EAST)),
}
_EXPRESSIONS: Final[dict[type, Expression]] = {
    str: _text,
    int: _whole,
    bool: _flag,
    float: _number,
    datetime: _moment,
    date: _day,
    time: _day,
    UUID: _uuid,
}
