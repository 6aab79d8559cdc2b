"""Casts of plain values from one field type to another: the pairs that lose nothing, and texts that say it exactly.

Each pair is named, so that Spark can do the same; a value that would be rounded or cut is refused on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from eventstore.fields.conversions import as_double, as_long, exact_decimal
from eventstore.fields.field_types import Avro

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
