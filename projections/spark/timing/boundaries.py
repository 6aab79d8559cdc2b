"""The moments at which windows begin, as whole microseconds since 1970: `projections.declaring.timing.windows.Grid`.

A grid of a zone is on the clocks there: a moment's time of day is rounded down, and the moment of the result is looked
for among those around it, since clocks that are set leave out times of day or show them twice.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from projections.declaring.timing.lengths import DAY, Length
from projections.declaring.timing.windows import HOUR, Grid

_MONDAY: Final = -3 * DAY  # the one before 1970
_WEEK: Final = 7 * DAY


def latest(moment: Column, grid: Grid) -> Column:
    """The moment of the grid that is the last one not after another."""
    if grid.zone is None:
        return _rounded(moment, grid)
    if _has_each(grid):
        clock = local(moment, grid.zone)
        same = _rounded(clock, grid) - (clock - moment)
        return F.when(local(same, grid.zone) == _rounded(clock, grid), same).otherwise(
            instant(_rounded(clock, grid), grid.zone)
        )
    around = [_moved(moment, grid, steps) for steps in (-1, 0, 1)]
    return F.greatest(*(F.when(one <= moment, one) for one in around))


def following(moment: Column, grid: Grid) -> Column:
    """The moment of the grid that is the first one after another."""
    if grid.zone is None:
        return _later(_rounded(moment, grid), grid.step, grid)
    if _has_each(grid):
        clock = local(moment, grid.zone)
        reached = _rounded(clock, grid) + grid.step.micros
        same, other = reached - (clock - moment), instant(reached, grid.zone)
        is_on_grid = local(same, grid.zone) == _rounded(local(same, grid.zone), grid)
        return F.least(F.when(is_on_grid, same), F.when(other > moment, other))
    around = [_moved(moment, grid, steps) for steps in (0, 1, 2)]
    return F.least(*(F.when(one > moment, one) for one in around))


def added(begin: Column, size: Length, grid: Grid, *, times: Column | int = 1) -> Column:
    """A moment by a size later than one of the grid: days and months are those of the clocks."""
    if grid.zone is None or not size.is_of_days:
        return _later(begin, size, grid, times)
    # Where the clocks leave a beginning out, the next one is counted from what they would have shown.
    return instant(_later(_rounded(local(begin, grid.zone), grid), size, grid, times), grid.zone)


def local(moment: Column, zone: str) -> Column:
    """What the clocks of a zone show at a moment, as the moment at which UTC's show it."""
    return F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(moment), zone))


def instant(clock: Column, zone: str) -> Column:
    """The first moment at which the clocks of a zone show a time; where they leave it out, as if they had not."""
    return F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(clock), zone))


def _has_each(grid: Grid) -> bool:
    return bool(grid.step.micros) and HOUR % grid.step.micros == 0


def _moved(moment: Column, grid: Grid, steps: int) -> Column:
    assert grid.zone is not None  # noqa: S101 - asked above
    return instant(_later(_rounded(local(moment, grid.zone), grid), grid.step, grid, steps), grid.zone)


def _later(clock: Column, size: Length, grid: Grid, times: Column | int = 1) -> Column:
    """A time later by a size, on clocks that are never set; the days of months are counted without the offset."""
    if size.months:
        return _months_later(clock - grid.offset, times * size.months) + grid.offset
    return clock + times * size.micros


def _rounded(clock: Column, grid: Grid) -> Column:
    """A time rounded down to the grid, on clocks that are never set."""
    if grid.step.months:
        day = F.date_from_unix_date(_floored(clock - grid.offset, DAY).cast("int"))
        months = (F.year(day) - 1970) * 12 + F.month(day) - 1
        first = months - F.pmod(months, F.lit(grid.step.months))
        return _months_later(F.lit(0), first) + grid.offset
    begins = grid.offset + (_MONDAY if grid.step.micros % _WEEK == 0 else 0)
    return clock - F.pmod(clock - begins, F.lit(grid.step.micros))


def _months_later(clock: Column, months: Column | int) -> Column:
    """The same day and time of day some months later; the last day of a month that has no such day."""
    day = _floored(clock, DAY)
    later = F.add_months(F.date_from_unix_date(day.cast("int")), months)
    return F.unix_date(later).cast("bigint") * DAY + (clock - day * DAY)


def _floored(micros: Column, by: int) -> Column:
    # Rounded, because a double has fewer digits than microseconds have.
    return F.round((micros - F.pmod(micros, F.lit(by))) / by).cast("bigint")
