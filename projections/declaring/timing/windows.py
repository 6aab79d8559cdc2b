"""Windows of time over the rows of a table: each row with the window, or the windows, that its time is in.

    orders_by_day = windowed("orders_by_day", orders, tumbling("1 day", zone="Europe/Berlin"), on="placed_at")

    @view(by="window_start")
    def orders_per_day(orders_by_day):
        return orders_by_day.groupBy("window_start").agg(F.count("*").alias("orders"))

    @view(by=tumbling("1 day", zone="Europe/Berlin", on="placed_at"))  # both in one
    def orders_per_day(orders):
        return orders.groupBy("window_start").agg(F.count("*").alias("orders"))

A window is a column of a row, computed from its time. Nothing closes it: a row that comes late, changes or goes changes
what its window shows.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass, field
from typing import Final

from projections.declaring.timing.promises import DAY, Lasting, Length, exact, positive
from projections.declaring.views import Columns, Input, as_columns
from projections.errors import InvalidDefinition

HOUR: Final = DAY // 24
_MOST_WINDOWS: Final = 10_000  # of one row: more is a mistake in a unit


@dataclass(frozen=True)
class Grid:
    """The moments at which windows begin: every ``step`` from ``offset`` on, on the clocks of ``zone`` (None: UTC).

    Weeks begin on Mondays. A step that divides an hour has a moment at each of two equal times of day, where clocks are
    set back; one of hours or days has it at the first of them.
    """

    step: Length
    offset: int = 0
    zone: str | None = None


@dataclass(frozen=True)
class Tumbling:
    """Windows one after the other; see `tumbling`."""

    grid: Grid
    on: str | None = field(default=None, repr=False)

    def key(self, table: Input, named: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of partitions, and the columns that tell the rows of one apart."""
        return (), table.key


@dataclass(frozen=True)
class Hopping:
    """Windows that begin every so often and overlap; see `hopping`."""

    size: Length
    grid: Grid
    on: str | None = field(default=None, repr=False)

    def key(self, table: Input, named: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A row is in several windows, which their beginnings tell apart."""
        return table.key, (f"{named}_start",)


@dataclass(frozen=True)
class Cumulative:
    """Windows that begin together and end one after the other; see `cumulative`."""

    grid: Grid
    step: Length
    on: str | None = field(default=None, repr=False)

    def key(self, table: Input, named: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A row is in several windows, which their ends tell apart."""
        return table.key, (f"{named}_end",)


@dataclass(frozen=True)
class Session:
    """Windows that end where nothing happens for a while; see `session`."""

    gap: int
    by: tuple[str, ...]
    on: str | None = field(default=None, repr=False)

    def key(self, table: Input, named: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """A session is of rows of one partition."""
        return self.by, table.key


Window = Tumbling | Hopping | Cumulative | Session


def tumbling(
    size: Lasting, *, offset: Lasting = "0 seconds", zone: str | None = None, on: str | None = None
) -> Tumbling:
    """Declare windows of one size, one after the other: minutes, hours, days, weeks or months.

    Args:
        size: The size.
        offset: Moves all beginnings.
        zone: The time zone in which days begin, such as ``"Europe/Berlin"``. Its days have 23 to 25 hours.
        on: The column of a row's time, for ``view(by=…)``.

    Raises:
        InvalidDefinition: A length or the zone is wrong.

    Examples:
        >>> days = tumbling("1 day", offset="6 hours", zone="Europe/Berlin")
        >>> orders_by_day = windowed("orders_by_day", orders, days, on="placed_at")
    """
    return Tumbling(_grid(positive(size, what="size"), offset, zone), on)


def hopping(
    size: Lasting, every: Lasting, *, offset: Lasting = "0 seconds", zone: str | None = None, on: str | None = None
) -> Hopping:
    """Declare windows of one size that begin at a fixed interval. A row may be in several of them, or in none.

    A size of days ends at the time of day at which it begins. A size of hours or less lasts exactly so long.

    Args:
        size: The size.
        every: The interval.
        offset: Moves all beginnings.
        zone: The time zone, as in `tumbling`.
        on: The column of a row's time, as in `tumbling`.

    Raises:
        InvalidDefinition: A length or the zone is wrong.

    Examples:
        >>> busy_hours = windowed("busy_hours", orders, hopping("1 hour", "10 minutes"), on="placed_at")
    """
    windows = Hopping(positive(size, what="size"), _grid(positive(every, what="every"), offset, zone), on)
    if windows_of(windows) > _MOST_WINDOWS:
        raise InvalidDefinition(
            f"a row would be in {windows_of(windows)} windows of {size}, one every {every}",
            remedy=f"let windows begin less often: a row may be in {_MOST_WINDOWS}",
        )
    return windows


def cumulative(
    size: Lasting, step: Lasting, *, offset: Lasting = "0 seconds", zone: str | None = None, on: str | None = None
) -> Cumulative:
    """Declare windows that begin together and end one ``step`` after another, up to ``size``.

    Raises InvalidDefinition for a wrong length or zone.

    Examples:
        >>> day_so_far = windowed("day_so_far", orders, cumulative("1 day", "1 hour"), on="placed_at")
    """
    grid, each = _grid(positive(size, what="size"), offset, zone), positive(step, what="step")
    if each.months or _longest(grid.step) < each.micros:
        raise InvalidDefinition(
            f"a window of {size} cannot grow by {step}", remedy="give a step shorter than size, in days or less"
        )
    if _longest(grid.step) // each.micros > _MOST_WINDOWS:
        raise InvalidDefinition(
            f"a row would be in {_longest(grid.step) // each.micros} windows",
            remedy=f"let windows grow by more: a row may be in {_MOST_WINDOWS}",
        )
    return Cumulative(grid, each, on)


def session(gap: Lasting, *, by: Columns, on: str | None = None) -> Session:
    """Declare windows of rows that follow each other within ``gap``, for each value of ``by``.

    Two rows are in one session if the rows from one to the other are at most ``gap`` apart. A session begins with its
    first row and ends ``gap`` after its last one. A row that comes between two sessions joins them, and its deletion
    splits them again. Raises InvalidDefinition for a wrong length.

    Examples:
        >>> stays = windowed("stays", orders, session("30 minutes", by="customer_id"), on="placed_at")
    """
    positive(gap, what="gap")
    columns = as_columns(by or ())
    if not columns:
        raise InvalidDefinition("session has no columns in by", remedy="name the columns of its key, by='customer_id'")
    return Session(exact(gap, what="gap"), columns, on)


def lasts(window: Window) -> int | None:
    """How many microseconds a window lasts at most; None where nothing bounds it.

    >>> lasts(tumbling("1 hour"))
    3600000000
    """
    match window:
        case Session():
            return None
        case Hopping():
            return hop_lasts(window)
    return _on_clocks(window.grid.step, window.grid)


def hop_lasts(window: Hopping) -> int:
    """How many microseconds a window of a hop lasts at most."""
    return _on_clocks(window.size, window.grid) if window.size.is_of_days else window.size.micros


def _on_clocks(size: Length, grid: Grid) -> int:
    """How many microseconds pass at most while the clocks of a grid go on by a size."""
    # Clocks are set back by an hour or two, and once were by a day.
    return _longest(size) + (0 if grid.zone is None else DAY)


def windows_of(window: Hopping) -> int:
    """How many windows a row may be in."""
    return -(-_longest(window.size) // _shortest(window.grid.step))


def _grid(step: Length, offset: Lasting, zone: str | None) -> Grid:
    moved = exact(offset, what="offset")
    if zone is None:
        return Grid(step, moved)
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidDefinition(
            f"zone {zone!r} is no time zone", remedy="name one of the IANA database, such as 'Europe/Berlin'"
        ) from None
    if not step.is_of_days and (moved or not (HOUR % step.micros == 0 or _divides_a_day(step))):
        raise InvalidDefinition(
            f"windows every {step}{f' from {offset} on' if moved else ''} do not fit the clocks of {zone}",
            remedy="with a zone, choose a step that divides an hour, hours that divide a day, or days. An offset is for"
            " days, or leave zone out",
        )
    return Grid(step, moved, zone)


def _divides_a_day(step: Length) -> bool:
    return step.micros % HOUR == 0 and DAY % step.micros == 0


def _longest(size: Length) -> int:
    return size.months * 31 * DAY + size.micros


def _shortest(size: Length) -> int:
    return size.months * 28 * DAY + size.micros
