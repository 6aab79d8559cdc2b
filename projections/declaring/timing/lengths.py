"""Lengths of time as users write them: "10 minutes", "1 day", "3 months", or a timedelta."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from projections.errors import InvalidDefinition

Lasting = str | timedelta

DAY: Final = 86_400_000_000  # microseconds
_UNITS: Final = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": DAY, "week": 7 * DAY,
}  # fmt: skip
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_WRITTEN: Final = re.compile(r"(?P<sign>-?)(?P<number>[0-9]+) (?P<unit>[a-z]+?)s?")
_MOST: Final = 1_000_000 * DAY  # more is a mistake, and would leave the years that a timestamp can have


@dataclass(frozen=True)
class Length:
    """A length of time: whole ``months``, or ``micros``, of which those of whole days are days of the calendar."""

    micros: int = 0
    months: int = 0

    @property
    def is_of_days(self) -> bool:
        """Whether it is counted in days, which last 23 to 25 hours where clocks are changed."""
        return bool(self.months) or self.micros % DAY == 0

    def __str__(self) -> str:
        unit = (
            "month" if self.months else next(n for n, micros in reversed(_UNITS.items()) if self.micros % micros == 0)
        )
        number = self.months or self.micros // _UNITS[unit]
        return f"{number} {unit}{'' if number == 1 else 's'}"


def length(written: Lasting, *, what: str) -> Length:
    """The length that was written; ``what`` names it in the error. InvalidDefinition.

    >>> length("90 minutes", what="gap")
    Length(micros=5400000000, months=0)
    """
    if isinstance(written, timedelta):
        return _checked(Length(written // timedelta(microseconds=1)), written, what)
    match = _WRITTEN.fullmatch(written.strip().lower()) if isinstance(written, str) else None
    if match is None or match["unit"] not in {**_UNITS, **_MONTHS}:
        raise InvalidDefinition(
            f"{what} {written!r} is no length of time",
            remedy=f"write a number and a unit, '10 minutes': {', '.join((*_UNITS, *_MONTHS))}. Or pass a timedelta",
        )
    number = int(f"{match['sign']}{match['number']}")
    if match["unit"] in _MONTHS:
        return _checked(Length(months=number * _MONTHS[match["unit"]]), written, what)
    return _checked(Length(number * _UNITS[match["unit"]]), written, what)


def positive(written: Lasting, *, what: str) -> Length:
    """A length of more than nothing; InvalidDefinition."""
    result = length(written, what=what)
    if result.micros > 0 or result.months > 0:
        return result
    raise InvalidDefinition(f"{what} {str(written)!r} is not positive", remedy=f"give {what} a length above zero")


def exact(written: Lasting, *, what: str) -> int:
    """Microseconds; a length of months has no number of them, which is InvalidDefinition."""
    result = length(written, what=what)
    if result.months:
        raise InvalidDefinition(
            f"{what} {written!r} is of months, which last 28 to 31 days", remedy="write it in days, '30 days'"
        )
    return result.micros


def _checked(length: Length, written: Lasting, what: str) -> Length:
    if abs(length.micros) > _MOST or abs(length.months) > _MOST // (28 * DAY):
        raise InvalidDefinition(
            f"{what} {str(written)!r} is longer than timestamps reach", remedy="check its unit. At most 1000000 days"
        )
    return length
