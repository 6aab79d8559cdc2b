"""What bounds a state: promises of streams and views, by which rows of long ago are forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from projections.declaring.timing.lengths import Lasting, exact
from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    from projections.declaring.columns import ColumnType

_A_LENGTH: Final = "give a length of time of zero or more: retain=Retain(late='1 hour', delivered='1 day')"


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


def require_row_time(view: str, reach: Reach, column: ColumnType | None) -> None:
    """Refuse a time of rows that a view with a reach does not have, or that is no timestamp; InvalidDefinition."""
    if column is not None and column.kind == "timestamp":
        return
    raise InvalidDefinition(
        f"view {view!r} reaches from {reach.on!r}, which is {'no column of it' if column is None else column.ddl}",
        remedy="name the timestamp of its rows: reach=Reach('2 hours', on='…')",
        place=f"view {view}",
    )


@dataclass(frozen=True)
class InWindows:
    """What a windowed view does: rows by their time ``on`` have windows from ``start`` to ``end``.

    A window lasts at most ``longest`` microseconds; None where nothing bounds it.
    """

    on: str
    start: str
    end: str
    longest: int | None
