"""What bounds a state: promises of streams and views, by which rows of long ago are forgotten.

Lengths of time are as users write them: "10 minutes", "1 day", "3 months", or a timedelta.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from projections.declaring.columns import ColumnType


Lasting = str | timedelta

DAY: Final = 86_400_000_000  # microseconds
_UNITS: Final = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": DAY, "week": 7 * DAY,
}  # fmt: skip
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_WRITTEN: Final = re.compile(r"(?P<sign>-?)(?P<number>[0-9]+) (?P<unit>[a-z]+?)s?")
_MOST: Final = 1_000_000 * DAY  # more is a mistake, and would leave the years that a timestamp can have
_A_LENGTH: Final = "give a length of time of zero or more: retain=Retain(late='1 hour', delivered='1 day')"


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


@dataclass(frozen=True)
class Retain:
    """How late an event of a stream may be. Rows that no later event can concern are then forgotten.

    Attributes:
        late: How long after its event time an event is recorded at most. A later one is set aside, in every run and
            rebuild.
        delivered: How long after its recording an event is in the log at most, by the clock of the views' database. An
            event that comes after its rows were forgotten is set aside too.

    Raises:
        InvalidDefinition: A length is wrong.

    Examples:
        >>> searches = Stream.from_events(
        ...     Search, events=Search.Done, key="entry", id="search_id", time="at", retain=Retain(late="1 hour"))
    """

    late: Lasting
    delivered: Lasting = "1 day"

    def __post_init__(self) -> None:
        for name, micros in (("late", self.late_micros), ("delivered", self.delivered_micros)):
            if micros < 0:
                raise InvalidDefinition(f"{name} {getattr(self, name)!r} is negative", remedy=_A_LENGTH)

    @property
    def late_micros(self) -> int:
        """The first promise in microseconds."""
        return exact(self.late, what="late")

    @property
    def delivered_micros(self) -> int:
        """The second promise in microseconds."""
        return exact(self.delivered, what="delivered")


@dataclass(frozen=True)
class Reach:
    """How far in time a view looks: a row follows from rows at most ``length`` away.

    Attributes:
        length: The greatest distance.
        on: The column of the row's time.

    Raises:
        InvalidDefinition: The length is wrong.

    Examples:
        >>> @view(by="session", key=("entry", "click"), reach=Reach("10 minutes", on="at"))
        ... def answers(searches, clicks):
        ...     return join_within(
        ...         searches, clicks, on="session", times=("at", "at"), upper="10 minutes", take={"click": "entry"})
    """

    length: Lasting
    on: str

    def __post_init__(self) -> None:
        if self.micros < 0:
            raise InvalidDefinition(
                f"reach {self.length!r} is negative",
                remedy="give the greatest distance on either side of a row's time, '2 hours'",
            )

    @property
    def micros(self) -> int:
        """The length in microseconds."""
        return exact(self.length, what="reach")

    def __str__(self) -> str:
        return f"{self.micros} of {self.on}"


def require_row_time(view: str, what: str, on: str, column: ColumnType | None, *, remedy: str) -> None:
    """Refuse a time of rows that the view does not have, or that is no timestamp; InvalidDefinition."""
    if column is None or column.kind != "timestamp":
        kind = "no column of it" if column is None else column.ddl
        raise InvalidDefinition(f"view {view!r} {what} {on!r}, which is {kind}", remedy=remedy, place=f"view {view}")


@dataclass(frozen=True)
class InWindows:
    """What a windowed view does: rows by their time ``on`` have windows from ``start`` to ``end``.

    A window lasts at most ``longest`` microseconds; None where nothing bounds it.
    """

    on: str
    start: str
    end: str
    longest: int | None
