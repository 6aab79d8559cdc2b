"""Checks and conversions of single values, one function a field type.

Casts of plain values from one field type to another: the pairs that lose nothing, and texts that say it exactly.

Each pair is named, so that Spark can do the same; a value that would be rounded or cut is refused on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import Enum
from operator import index
from typing import Any, Final
from uuid import UUID

from eventstore.errors import InvalidEventData
from eventstore.identifiers import require_type

Convert = Callable[[Any], Any]
Avro = str | dict[str, Any] | list[Any]
MISFITS: Final = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError)
"""What conversions raise for a value that does not fit, in addition to InvalidEventData."""
_NO_LISTS: Final = (str, bytes, bytearray, memoryview, Mapping, Set)
_EXACT: Final = [Inexact, InvalidOperation]


def as_text(value: str) -> str:
    """Return a text; InvalidEventData where it has the character NUL, which PostgreSQL stores in no column."""
    if "\0" in value:
        raise InvalidEventData(
            f"text {value[:80]!r} has the character NUL at place {value.index(chr(0))}",
            remedy="remove the character, or declare the field as bytes",
        )
    return value


def as_double(value: Any) -> float:
    """Return a number as a double; ValueError where it would be rounded."""
    if type(value) is float:
        return value
    exact = index(value) if hasattr(value, "__index__") else value  # one of numpy is compared as a double
    double = float(exact)
    if double == exact or (double != double and exact != exact):  # NaN equals nothing
        return double
    raise ValueError(f"{value!r} is no double")


def exact_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """Return the same number with the digits of its type; ArithmeticError where it would be rounded or cut."""
    if not value.is_finite():
        raise ArithmeticError(f"{value} is not a finite number")
    # The usual context has 28 digits; a type may have 38.
    return value.quantize(Decimal((0, (1,), -scale)), context=Context(prec=precision, traps=_EXACT))


def decimal_of(precision: int, scale: int) -> Convert:
    """Check that a number has a place in a type, and give it that many digits; InvalidEventData."""

    def checked(value: Decimal) -> Decimal:
        try:
            return exact_decimal(value, precision, scale)
        except ArithmeticError:
            raise InvalidEventData(
                f"{value} does not fit into {precision - scale} digits before the point and {scale} after it",
                remedy="use a finite number of fewer digits, or Annotated[Decimal, Digits(precision, scale)]",
            ) from None

    return checked


def as_long(value: int) -> int:
    """Check that a number is one of 64 bits: among several types fastavro would make a double of a longer one."""
    if -(2**63) <= value < 2**63:
        return value
    raise ValueError(f"{value} has more than 64 bits")


def exactly(kind: type) -> Convert:
    """Check what fastavro would convert: text as a date, a datetime as a date, any object as a boolean."""

    def checked(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise TypeError(f"{type(value).__name__} is not {kind.__name__}")

    return checked


_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)  # the last day that is in year 9999 on every clock


def not_negative(given: timedelta | None, what: str) -> timedelta:
    """Return a length of time; InvalidEventData for one below zero, or for another value."""
    if not isinstance(given, timedelta) or given < timedelta(0):
        raise InvalidEventData(f"{what} is {given!r}", remedy="use a timedelta of zero or more")
    return given


def later(moment: datetime, by: timedelta) -> datetime:
    """Return a moment some time later; InvalidEventData beyond the year 9999."""
    if by > _LAST - moment:
        raise InvalidEventData(f"{by} after {moment.isoformat()} is beyond the year 9999", remedy="use a shorter time")
    return moment + by


def later_or_last(moment: datetime, by: timedelta) -> datetime:
    """The same; beyond the year 9999 its last day, which stands for never."""
    return _LAST if by > _LAST - moment else moment + by


def utc_now() -> datetime:
    """Return the time of this machine, UTC."""
    return datetime.now(UTC)


def aware_utc(value: datetime) -> datetime:
    """Return the moment in UTC; InvalidEventData where it has no time zone, or more digits or years than a datetime."""
    require_type(value, datetime, "a moment", takes="a datetime with a time zone")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidEventData(
            f"datetime {value.isoformat()} has no time zone",
            remedy="use aware datetimes, for example datetime.now(UTC)",
        )
    if getattr(value, "nanosecond", 0):  # of pandas
        raise InvalidEventData(
            f"datetime {value.isoformat()} has nanoseconds, and events store microseconds",
            remedy='round it: timestamp.round("us"), or store the nanoseconds as an int',
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidEventData(
            f"datetime {value.isoformat()} is outside of the years 1 to 9999 in UTC",
            remedy="use a moment that UTC can express, for example datetime.max.replace(tzinfo=UTC)",
        ) from None


def as_uuid(value: UUID | str) -> UUID:
    """Return the UUID, which Spark gives as text."""
    return value if isinstance(value, UUID) else UUID(value)


def enum_texts(hint: type[Enum]) -> dict[Enum, str]:
    """Return the text each member travels by: its value where all values are text, else its name."""
    by_value = all(isinstance(member.value, str) for member in hint)
    return {member: member.value if by_value else member.name for member in hint}


def enum_names(hint: type[Enum]) -> dict[str, str]:
    """Return the text that each name of an enum is read by; an alias too has one, and may have been stored."""
    texts = enum_texts(hint)
    by_value = any(text != member.name for member, text in texts.items())
    return {name: texts[member] if by_value else name for name, member in hint.__members__.items()}


def enum_text(hint: type[Enum]) -> Convert:
    """Convert a member to its text; TypeError for what only equals one, as a member of another enum may."""
    texts = enum_texts(hint)

    def to_text(member: Enum) -> str:
        if type(member) is hint:
            return texts[member]
        raise TypeError(f"{member!r} is no member of {hint.__qualname__}")

    return to_text


def enum_member(hint: type[Enum]) -> Convert:
    """Convert a text back to its member."""
    members = enum_members(hint)

    def from_text(text: str) -> Enum:
        try:
            return members[text]
        except KeyError:
            raise InvalidEventData(
                f"{text!r} is no member of {hint.__qualname__}",
                remedy="add the member back: stored events still use it",
            ) from None

    return from_text


def enum_members(hint: type[Enum]) -> dict[str, Enum]:
    """Return the member that each text is read as."""
    return {text: hint.__members__[name] for name, text in enum_names(hint).items()}


def unless_none(convert: Convert | None) -> Convert | None:
    """Let None pass a conversion."""
    return None if convert is None else (lambda value: None if value is None else convert(value))


def each(convert: Convert | None) -> Convert | None:
    """Convert every item of a list."""
    return None if convert is None else (lambda values: [convert(value) for value in values])


def each_value(convert: Convert | None) -> Convert | None:
    """Convert every value of a dictionary."""
    return None if convert is None else (lambda values: {k: convert(v) for k, v in values.items()})


def items_to_plain(convert: Convert | None) -> Convert:
    """Convert every item of a list; TypeError for what only looks like one: text, bytes, the keys of a dictionary."""

    def converted(values: Any) -> list[Any]:
        if isinstance(values, _NO_LISTS):
            raise TypeError(f"{type(values).__name__} is not list")
        return list(values) if convert is None else [convert(value) for value in values]

    return converted


def values_to_plain(convert: Convert | None) -> Convert:
    """Convert every value of a dictionary, and check that its keys are texts."""

    def converted(values: Any) -> dict[str, Any]:
        return {as_text(key): value if convert is None else convert(value) for key, value in values.items()}

    return converted


def with_path(step: str, convert: Convert | None) -> Convert | None:
    """Let a conversion put a step before the place of what does not fit: ``[]`` of a list, ``{}`` of a dictionary."""
    if convert is None:
        return None

    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except InvalidEventData as error:
            raise placed(step, error) from None

    return converted


def placed(step: str, error: InvalidEventData) -> InvalidEventData:
    """Return the error with its place a step further from what holds it; the event puts its own name in front."""
    return InvalidEventData(error.message, remedy=error.remedy, place=f"{step}{error.place or ''}")


ENUM: Final = "enum"
WHOLE: Final = r"^[+-]?[0-9]+$"
NUMBER: Final = r"^[+-]?[0-9]+(\.[0-9]+)?$"
DAY: Final = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}$"
IDENTIFIER: Final = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def kind_of(avro: Avro) -> str:
    """Return the logical type, or the plain one, or enum for a text of a few. A null in the union is ignored."""
    if isinstance(avro, list):
        others = [member for member in avro if member != "null"]
        return kind_of(others[0]) if len(others) == 1 else "union"
    if isinstance(avro, dict):
        return "enum" if ENUM in avro else str(avro.get("logicalType", avro["type"]))
    return avro


def cast_kind_of(avro: Avro) -> str:
    """Return the kind that values of a type are cast from: those of an enum are texts."""
    kind = kind_of(avro)
    return "string" if kind == "enum" else kind


def can_cast(source: Avro, target: Avro) -> bool:
    """Say whether there is a cast between two field types, or none is needed."""
    pair = (cast_kind_of(source), kind_of(target))
    return pair in _CASTS or pair[0] == pair[1]


def cast_plain(value: Any, target: Avro) -> Any:
    """Cast a plain value; None stays None. ValueError where the value cannot be said in the target type."""
    if value is None:
        return None
    kind = kind_of(target)
    pair = (_kind_of_value(value), kind)
    if pair not in _CASTS and pair[0] != kind:
        raise ValueError(f"there is no cast from {pair[0]} to {kind}")
    result = _CASTS[pair](value) if pair in _CASTS else value
    return _FITTING[kind](result, target) if kind in _FITTING else result


_KINDS: Final[dict[type, str]] = {
    bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes", Decimal: "decimal", date: "date",
    datetime: "timestamp-micros", UUID: "uuid", list: "array", dict: "map",
}  # fmt: skip


def _kind_of_value(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _matching(pattern: str, convert: Callable[[str], Any]) -> Callable[[str], Any]:
    compiled = re.compile(pattern, re.ASCII)

    def cast(text: str) -> Any:
        # fullmatch: $ alone would let a line break pass.
        if compiled.fullmatch(text) is None:
            raise ValueError(f"{text!r} does not look like {pattern}")
        return convert(text)

    return cast


def decimal_digits(avro: Avro) -> Mapping[str, Any]:
    """Return the schema of a decimal, with precision and scale. A null in the union is ignored."""
    return _declared(avro)


def enum_of(avro: Avro) -> list[str]:
    """Return the texts of an enum's type. A null in the union is ignored."""
    return list(_declared(avro)[ENUM].values())


def _declared(avro: Avro) -> Mapping[str, Any]:
    declared = next(member for member in (avro if isinstance(avro, list) else [avro]) if member != "null")
    assert isinstance(declared, dict)  # noqa: S101 - the schema of a decimal or an enum is an object
    return declared


def _member(value: str, target: Avro) -> str:
    if value in enum_of(target):
        return value
    raise ValueError(f"{value!r} is none of {', '.join(map(repr, enum_of(target)))}")


def _fitting(value: Decimal, target: Avro) -> Decimal:
    """The same number with the target's digits; ValueError where it would be rounded or has no place."""
    precision, scale = decimal_digits(target)["precision"], decimal_digits(target).get("scale", 0)
    try:
        return exact_decimal(value, precision, scale)
    except ArithmeticError:
        raise ValueError(f"{value} has no place among {precision} digits, {scale} of them after the point") from None


def _long(text: str) -> int:
    return as_long(int(Decimal(text)))  # int() alone refuses texts of many zeros, and Spark reads them


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(tzinfo=UTC))


_FITTING: Final[dict[str, Callable[[Any, Avro], Any]]] = {"decimal": _fitting, "enum": _member}

_CASTS: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    ("boolean", "long"): int,
    ("long", "double"): as_double,
    ("long", "decimal"): Decimal,
    ("long", "string"): str,
    ("decimal", "string"): lambda value: format(value, "f"),
    ("decimal", "decimal"): lambda value: value,
    ("date", "timestamp-micros"): _midnight,
    ("string", "long"): _matching(WHOLE, _long),
    ("string", "decimal"): _matching(NUMBER, Decimal),
    ("string", "date"): _matching(DAY, date.fromisoformat),
    ("string", "uuid"): _matching(IDENTIFIER, UUID),
    ("string", "enum"): lambda value: value,
    ("uuid", "string"): str,
}
