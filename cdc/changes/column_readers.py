"""Values of change events → Python values, by the type of a SQLAlchemy column and by what the record's schema says."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from cdc.changes.semantic_types import BEGINLESS_TEXTS, DOUBLES, ENDLESS_TEXTS, Form, opener
from cdc.errors import UnsupportedEncoding

if TYPE_CHECKING:
    from sqlalchemy import Column

Reader = Callable[[Any], Any]

# What Debezium writes of an interval with interval.handling.mode=string: P0Y0M1DT2H3M4.5S, each part with its own sign.
_INTERVAL = re.compile(
    r"P(?P<years>-?\d+)Y(?P<months>-?\d+)M(?P<days>-?\d+)DT(?P<hours>-?\d+)H(?P<minutes>-?\d+)M(?P<seconds>-?\d+(?:\.\d+)?)S"
)
# What an inner array comes as, of a type whose items come as text: the name of its Java class.
INNER_ARRAY: Final = r"\[L[\w.]+;@[0-9a-f]+"
# Items of which an inner array comes as null.
_NULLED_ITEMS = (int, float, bool, bytes, Decimal, date, time, datetime)
# Items of arrays for which Debezium has something to send where an update left the array alone.
_MARKED_ITEMS = (str, int, UUID)


def reader_for(column: Column[Any], form: Form | None = None) -> Reader:
    """Return the function that reads a column's value, which a schema describes or which says itself what it is.

    UnsupportedEncoding for a type without a form here, and for a form that leaves two readings.
    """
    dimensions = getattr(column.type, "dimensions", None) or 1
    if dimensions > 1:
        raise UnsupportedEncoding(
            f"column {column} is an array of {dimensions} dimensions, whose values do not arrive",
            remedy="leave the column out of the declared table, or store it as jsonb",
            place=str(column),
        )
    reader = _reader(column.type)
    if reader is None:
        raise UnsupportedEncoding(
            f"column {column} has type {column.type!r}, which has no self-describing form here",
            remedy="leave the column out of the declared table, or declare it as text",
            place=str(column),
        )
    return reader if form is None else _described(column, reader, form)


def _described(column: Column[Any], reader: Reader, form: Form) -> Reader:
    python_type = python_type_of(column.type)
    if python_type is bytes and form.type == "string":
        raise UnsupportedEncoding(
            f"column {column} comes as text that could be base64 or hexadecimal",
            remedy="set binary.handling.mode=bytes",
            place=str(column),
        )
    open_value = _decimals_of_doubles if _holds_doubles(column.type, form) else opener(form)
    return reader if open_value is None else lambda value: reader(open_value(value))


def _holds_doubles(kind: Any, form: Form) -> bool:
    """Whether decimals come as doubles: with the digits that a double has, and not as text."""
    if form.items is not None:
        return _holds_doubles(getattr(kind, "item_type", kind), form.items)
    return python_type_of(kind) is Decimal and form.type in DOUBLES


def _decimals_of_doubles(value: Any) -> Any:
    if isinstance(value, list):
        return [None if item is None else _decimals_of_doubles(item) for item in value]
    return Decimal(str(value))


def leaves_nulls(column: Column[Any]) -> bool:
    """Whether an update that left the column alone may come as null: Debezium has no mark for arrays of such items."""
    kind: Any = column.type
    if python_type_of(kind) is not list or kind.__visit_name__ in ("JSON", "JSONB"):
        return False
    item = python_type_of(kind.item_type)
    return not (item in _MARKED_ITEMS or _is_enum(item) or kind.item_type.__visit_name__ in ("JSON", "JSONB"))


def _reader(kind: Any) -> Reader | None:
    name = kind.__visit_name__
    # A JSON column has no Python type of its own: dict to SQLAlchemy 2.0, object to 2.1.
    if name in ("JSON", "JSONB"):
        return _json
    if name == "BIT":
        return _bits(kind)
    return _BY_NAME.get(name) or _reader_of(kind, python_type_of(kind))


def _reader_of(kind: Any, python_type: type | None) -> Reader | None:
    if python_type is list:
        return _items(kind)
    if python_type is datetime:
        return _aware if kind.timezone else _naive
    if python_type is time:
        return _zoned_time if kind.timezone else _time
    if _is_enum(python_type):
        return _members(kind).__getitem__
    if python_type is Decimal and kind.scale is not None:
        return _decimal_of(kind.scale)
    return _READERS.get(python_type) if python_type is not None else None


def _items(kind: Any) -> Reader | None:
    item = _reader(kind.item_type)
    # Debezium sends nothing for arrays of bits.
    if item is None or kind.item_type.__visit_name__ == "BIT":
        return None
    is_nested = _nested_if(kind)

    def read(value: Any) -> list[Any]:
        if is_nested(values := _listed(value)):
            raise ValueError("an array of more than one dimension arrives without its values")
        return [None if v is None else item(v) for v in values]

    return read


def _nested_if(kind: Any) -> Callable[[list[Any]], bool]:
    """What looks like an array of arrays: the declaration alone says of a list of nulls that it is none."""
    if kind.dimensions == 1:
        return lambda values: False
    item = python_type_of(kind.item_type)
    if kind.item_type.__visit_name__ == "OID" or item in _NULLED_ITEMS:
        return lambda values: bool(values) and all(value is None for value in values)
    return lambda values: any(isinstance(v, str) and re.fullmatch(INNER_ARRAY, v) is not None for v in values)


def _members(kind: Any) -> dict[str, Enum]:
    """What is stored of each member: its name, or what `values_callable` says, in the order of the members."""
    members = [member for name, member in kind.enum_class.__members__.items() if member.name == name]
    return dict(zip(kind.enums, members, strict=True))


def _is_enum(python_type: type | None) -> bool:
    return isinstance(python_type, type) and issubclass(python_type, Enum)


def python_type_of(kind: Any) -> type | None:
    """The Python type of a SQLAlchemy type's values, None where it tells none."""
    try:
        python_type: type = kind.python_type
    except NotImplementedError:
        return None
    return python_type


def _exactly(expected: type) -> Reader:
    def read(value: Any) -> Any:
        # bool is an int to Python and not to a database.
        if type(value) is not expected:
            raise TypeError(f"{value!r} is no {expected.__name__}")
        return value

    return read


def _boolean(value: Any) -> bool:
    # MySQL has no booleans: they are numbers of one digit.
    return bool(value) if type(value) is int and value in (0, 1) else _exactly(bool)(value)


def _number(value: Any) -> float:
    # NaN and the infinities arrive as text, as does a NUMERIC column read as float.
    if isinstance(value, bool):
        raise TypeError("a boolean is no number")
    return float(value)


def _decimal(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(_text(value))


def _decimal_of(scale: int) -> Reader:
    def read(value: Any) -> Decimal:
        number = _decimal(value)
        if number.is_finite() and any(_digits_behind(number, scale)):
            raise ValueError(f"{number} has more than {scale} digits behind the point")
        return number

    return read


def _digits_behind(number: Decimal, scale: int) -> tuple[int, ...]:
    """The digits that a column of this scale has no place for; arithmetic would round to 28 digits first."""
    _, digits, exponent = number.as_tuple()
    beyond = -int(exponent) - scale
    return digits[-beyond:] if beyond > 0 else ()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _aware(value: Any) -> datetime:
    text = _text(value)
    limit: datetime | None = _limit(text, datetime)
    if limit is not None:
        return limit.replace(tzinfo=UTC)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time with time zone arrived without one")
    return moment.astimezone(UTC)


def _naive(value: Any) -> datetime:
    if type(value) is datetime:
        return value
    # Debezium writes a Z behind times without time zone as well; it means nothing there.
    text = _text(value)
    moment: datetime = _limit(text, datetime) or datetime.fromisoformat(text.removesuffix("Z"))
    if moment.tzinfo is not None or "T" not in text:
        raise ValueError("a time without time zone arrived with one, or without a time of day")
    return moment


def _date(value: Any) -> date:
    if type(value) is date:
        return value
    text = _text(value)
    return _limit(text, date) or date.fromisoformat(text.removesuffix("Z"))


def _limit(text: str, kind: Any) -> Any:
    """Python's last or first date or time for PostgreSQL's infinite ones, as asyncpg has it; None for all others."""
    if text in ENDLESS_TEXTS:
        return kind.max
    return kind.min if text in BEGINLESS_TEXTS else None


def _time(value: Any) -> time:
    time_of_day = value if type(value) is time else time.fromisoformat(_text(value).removesuffix("Z"))
    if time_of_day.tzinfo is not None:
        raise ValueError("a time without time zone arrived with one")
    return time_of_day


def _zoned_time(value: Any) -> time:
    time_of_day = time.fromisoformat(_text(value))
    if time_of_day.tzinfo is None:
        raise ValueError("a time with time zone arrived without one")
    return time_of_day


def _interval(value: Any) -> timedelta:
    if type(value) is timedelta:
        return value
    match = _INTERVAL.fullmatch(_text(value))
    if match is None:
        raise ValueError("an interval is not written as P0Y0M0DT0H0M0S")
    if int(match["years"]) or int(match["months"]):
        raise ValueError("an interval of months has no length of its own. Declare the column as text")
    micros = int(Decimal(match["seconds"]).scaleb(6))
    return timedelta(int(match["days"]), 0, micros, 0, int(match["minutes"]), int(match["hours"]))


def _bits(kind: Any) -> Reader | None:
    """Bits as text, the first one first; how many a varying column has is not in the record."""
    if getattr(kind, "varying", False):
        return None

    length = kind.length or 1

    def read(value: Any) -> str:
        if type(value) is bool and length == 1:
            return str(int(value))
        # The lowest byte comes first, and zero bytes at the end do not come.
        number = int.from_bytes(_bytes(value), "little")
        if number >> length:
            raise ValueError(f"more than {length} bits")
        return format(number, f"0{length}b")

    return read


def _map(value: Any) -> dict[str, str | None]:
    mapping = json.loads(value) if isinstance(value, str) else value
    if not isinstance(mapping, dict):
        raise TypeError(f"{value!r} is no map")
    return mapping


def _json(value: Any) -> Any:
    return json.loads(_text(value))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else base64.b64decode(_text(value), validate=True)


def _uuid(value: Any) -> UUID:
    return UUID(_text(value))


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


_TEXTS = ("INET", "CIDR", "MACADDR", "MACADDR8", "TSVECTOR", "TSQUERY", "CITEXT", "INT4RANGE", "INT8RANGE", "NUMRANGE",
          "DATERANGE", "TSRANGE", "TSTZRANGE")  # fmt: skip
# Types of a database whose values have no Python type that SQLAlchemy knows.
_BY_NAME: dict[str, Reader] = {"HSTORE": _map, "OID": _exactly(int), **dict.fromkeys(_TEXTS, _exactly(str))}
_READERS: dict[type, Reader] = {
    str: _exactly(str),
    int: _exactly(int),
    bool: _boolean,
    float: _number,
    Decimal: _decimal,
    date: _date,
    time: _time,
    timedelta: _interval,
    bytes: _bytes,
    UUID: _uuid,
}
