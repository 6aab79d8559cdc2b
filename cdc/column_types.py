"""Self-describing JSON values → Python values, by the type of a SQLAlchemy column."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cdc.errors import UnsupportedEncoding

if TYPE_CHECKING:
    from sqlalchemy import Column

Reader = Callable[[Any], Any]


def reader_for(column: Column[Any]) -> Reader:
    """Return the function that reads a column's JSON value; UnsupportedEncoding for a type without a form."""
    reader = _reader(column.type)
    if reader is None:
        raise UnsupportedEncoding(
            f"column {column} has type {column.type!r}, which has no self-describing form here",
            remedy="leave the column out of the declared table, or declare it as text",
            place=str(column),
        )
    return reader


def _reader(kind: Any) -> Reader | None:
    # A JSON column has no Python type of its own: dict to SQLAlchemy 2.0, object to 2.1.
    if kind.__visit_name__ in ("JSON", "JSONB"):
        return _json
    python_type = python_type_of(kind)
    if python_type is list:
        item = _reader(kind.item_type)
        return None if item is None else lambda value: [None if v is None else item(v) for v in _listed(value)]
    if python_type is datetime:
        return _aware if kind.timezone else _naive
    if isinstance(python_type, type) and issubclass(python_type, Enum):
        return lambda value: python_type[value]
    return _READERS.get(python_type) if python_type is not None else None


def python_type_of(kind: Any) -> type | None:
    """The Python type of a SQLAlchemy type's values, None where it tells none."""
    try:
        python_type: type = kind.python_type
    except NotImplementedError:
        return None
    return python_type


def _exactly(wanted: type) -> Reader:
    def read(value: Any) -> Any:
        # bool is an int to Python and not to a database.
        if type(value) is not wanted:
            raise TypeError(f"{value!r} is no {wanted.__name__}")
        return value

    return read


def _number(value: Any) -> float:
    # NaN and the infinities arrive as text, as does a NUMERIC column read as float.
    if isinstance(value, bool):
        raise TypeError("a boolean is no number")
    return float(value)


def _decimal(value: Any) -> Decimal:
    return Decimal(_text(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _aware(value: Any) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError("a time with time zone arrived without one")
    return moment.astimezone(UTC)


def _naive(value: Any) -> datetime:
    # Debezium writes a Z behind times without time zone as well; it means nothing there.
    return datetime.fromisoformat(_text(value).removesuffix("Z"))


def _date(value: Any) -> date:
    return date.fromisoformat(_text(value).removesuffix("Z"))


def _time(value: Any) -> time:
    return time.fromisoformat(_text(value).removesuffix("Z"))


def _json(value: Any) -> Any:
    return json.loads(_text(value))


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _uuid(value: Any) -> UUID:
    return UUID(_text(value))


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


_READERS: dict[type, Reader] = {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _number,
    Decimal: _decimal,
    date: _date,
    time: _time,
    bytes: _bytes,
    UUID: _uuid,
}
