"""Values of events and states as a command shows them: as JSON that every program reads, and as short text."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Set
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any, Final

import typer

from eventstore.delivery.masking import MASK
from eventstore.personal.marks import Sealed

# Controls but for the end of a line and tabs, what changes the direction of writing, and what is no UTF-8.
_STEERING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def as_json(value: Any) -> Any:
    """Return what JSON takes: times and decimals as text, bytes hexadecimal, sealed personal values masked."""
    if isinstance(value, Sealed):
        return MASK
    if isinstance(value, Enum):
        return as_json(value.value) if isinstance(value.value, str) else value.name
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _endless(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    return _composed(value)


def _composed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, Set):
        return sorted((as_json(inner) for inner in value), key=str)
    fields = _fields(value)
    return str(value) if fields is None else {name: as_json(getattr(value, name)) for name in fields}


def _fields(value: Any) -> list[str] | None:
    """The fields of a dataclass, a msgspec struct or a Pydantic model; None for what has none."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    named = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "model_fields", None)
    return None if named is None else list(named)


def _endless(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def as_line(value: Any) -> str:
    """Return a value as JSON on one line; characters that would steer a terminal are escaped."""
    return printable(json.dumps(as_json(value), ensure_ascii=False))


def as_pairs(values: Mapping[str, Any]) -> str:
    """Return fields as `amount=3 by="Post"`."""
    return " ".join(f"{printable(str(name))}={as_line(value)}" for name, value in values.items())


def escaped(text: str) -> str:
    """Return a text with its lines, and with what would steer a terminal escaped as JSON and Python do it."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text that may hold data: whatever would steer the terminal is escaped."""
    typer.echo(escaped(text), nl=nl, err=err)


def printable(text: str) -> str:
    """Return a text on one line, with what cannot be printed escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def as_utc(moment: datetime) -> str:
    """Return a time as `2026-11-26 12:00:00.123Z`."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')}Z"
