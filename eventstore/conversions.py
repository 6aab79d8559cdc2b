"""Checks and conversions of single values, one function a field type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from eventstore.errors import InvalidEventData

Convert = Callable[[Any], Any]
MISFITS: Final = (ValueError, TypeError, AttributeError, KeyError)
"""What conversions raise, beside InvalidEventData, for a value that does not fit."""


def within(whole_digits: int) -> Convert:
    """Check what fastavro lets pass: NaN, and a number with more digits than the schema has room for."""

    def checked(value: Decimal) -> Decimal:
        if value.is_finite() and (value.adjusted() < whole_digits or not value):
            return value
        raise InvalidEventData(
            f"{value} has no place among {whole_digits} digits before the point",
            remedy="use a smaller finite number, or Annotated[Decimal, Digits(precision, scale)]",
        )

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


def aware_utc(value: datetime) -> datetime:
    """Return the moment in UTC; InvalidEventData where it has no time zone."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidEventData(
            f"datetime {value.isoformat()} has no time zone",
            remedy="use aware datetimes, for example datetime.now(UTC)",
        )
    return value.astimezone(UTC)


def as_uuid(value: UUID | str) -> UUID:
    """Return the UUID, which Spark gives as text."""
    return value if isinstance(value, UUID) else UUID(value)


def enum_texts(hint: type[Enum]) -> dict[Enum, str]:
    """Return the text each member travels by: its value where all values are text, else its name."""
    by_value = all(isinstance(member.value, str) for member in hint)
    return {member: member.value if by_value else name for name, member in hint.__members__.items()}


def enum_member(hint: type[Enum], texts: dict[Enum, str]) -> Convert:
    """Convert a text back to its member."""
    members = {text: member for member, text in texts.items()}

    def from_text(text: str) -> Enum:
        try:
            return members[text]
        except KeyError:
            raise InvalidEventData(
                f"{text!r} is no member of {hint.__qualname__}",
                remedy="add the member back: stored events still use it",
            ) from None

    return from_text


def unless_none(convert: Convert | None) -> Convert | None:
    """Let None pass a conversion."""
    return None if convert is None else (lambda value: None if value is None else convert(value))


def each(convert: Convert | None) -> Convert | None:
    """Convert every item of a list."""
    return None if convert is None else (lambda values: [convert(value) for value in values])


def each_value(convert: Convert | None) -> Convert | None:
    """Convert every value of a dictionary."""
    return None if convert is None else (lambda values: {k: convert(v) for k, v in values.items()})


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
