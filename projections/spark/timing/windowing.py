"""The functions of views that say which windows a row is in, and of histories.

Windows begin at moments, as whole microseconds since 1970: `projections.declaring.timing.windows.Grid`. A grid of a
zone is on the clocks there: a moment's time of day is rounded down, and the moment of the result is looked for among
those around it, since clocks that are set leave out times of day or show them twice.

A history has versions with the names of their times, without those that ended too long ago.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from projections.declaring.tables import FROM, TO
from projections.declaring.timing import promises
from projections.declaring.timing.promises import DAY, Lasting, Length
from projections.declaring.timing.validity import CURRENT, Validity
from projections.declaring.timing.windows import HOUR, Cumulative, Grid, Hopping, Session, Tumbling, Window, hop_lasts
from projections.declaring.views import as_columns
from projections.errors import InvalidDefinition
from projections.planning.nearness import CHAINED, MICROS, TIME
from projections.planning.plans import java
from projections.spark.timing.row_columns import require_time, saying

_MONDAY: Final = -3 * DAY  # the one before 1970
_WEEK: Final = 7 * DAY
_AT: Final = "_moment"
_LEAST_MONTH: Final = 28 * DAY


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


class Windowing:
    """The function of a windowed view: rows and their windows."""

    def __init__(
        self, window: Window, on: str, columns: Sequence[str] | None, named: str, parameter: inspect.Signature
    ) -> None:
        self._window, self._on, self._columns, self._named = window, on, columns, named
        self.__signature__ = parameter
        self.signature = f"{window} on {on} of {columns} as {named}"

    def __call__(self, rows: DataFrame) -> DataFrame:
        """The rows that have a time, with the beginning and the end of their window."""
        require_time(rows, self._on)
        _require_zone(rows, self._window)
        start, end = f"{self._named}_start", f"{self._named}_end"
        columns = list(self._columns or rows.columns)
        for name in (start, end, _AT):
            if name in columns:
                raise InvalidDefinition(
                    f"the rows have a column {name!r} already", remedy="name the window otherwise: named='day'"
                )
        timed = rows.where(F.col(self._on).isNotNull()).withColumn(_AT, F.unix_micros(self._on))
        placed = _PLACED[type(self._window)](timed, self._window, start, end)
        return placed.select(*columns, start, end)


def _require_zone(rows: DataFrame, window: Window) -> None:
    """Refuse a zone that Java does not know, whose list may be older than Python's; InvalidDefinition."""
    zone = None if isinstance(window, Session) else window.grid.zone
    known = java(rows.sparkSession).java.time.ZoneId
    if zone is None or known.getAvailableZoneIds().contains(zone) or known.SHORT_IDS.containsKey(zone):
        return
    raise InvalidDefinition(
        f"Spark's Java does not know the time zone {zone!r}",
        remedy="name another zone with the same clocks, or run Spark on a newer Java",
    )


def _tumbling(rows: DataFrame, window: Tumbling, start: str, end: str) -> DataFrame:
    begins, ends = latest(F.col(_AT), window.grid), following(F.col(_AT), window.grid)
    return rows.withColumns({start: F.timestamp_micros(begins), end: F.timestamp_micros(ends)})


def _hopping(rows: DataFrame, window: Hopping, start: str, end: str) -> DataFrame:
    # Where clocks are set, two beginnings may be half a step apart: half steps back pass over none of them.
    parts = 1 if window.grid.zone is None and not window.grid.step.months else 2
    stride = (window.grid.step.micros or window.grid.step.months * _LEAST_MONTH) // parts
    count = hop_lasts(window) // stride + parts + 1
    back = F.sequence(F.lit(0).cast("bigint"), F.lit(count).cast("bigint"))
    begins = F.transform(back, lambda n: F.timestamp_micros(latest(F.col(_AT) - n * stride, window.grid)))
    beginning = rows.withColumn(start, F.explode(F.array_distinct(begins)))
    ends = added(F.unix_micros(start), window.size, window.grid)
    return beginning.withColumn(end, F.timestamp_micros(ends)).where(F.unix_micros(end) > F.col(_AT))


def _cumulative(rows: DataFrame, window: Cumulative, start: str, end: str) -> DataFrame:
    begins, last, step = F.col("_begins"), F.col("_last"), window.step
    at, grid = F.col(_AT), window.grid
    whole = rows.withColumns({"_begins": latest(at, grid), "_last": following(at, grid)})
    numbers = F.sequence(F.lit(1).cast("bigint"), ((last - begins) / step.micros).cast("bigint") + 2)
    ends = F.transform(numbers, lambda n: F.least(added(begins, step, grid, times=n), last))
    coming = F.transform(F.filter(ends, lambda one: one > at), F.timestamp_micros)
    ending = whole.withColumn(end, F.explode(F.array_distinct(coming)))
    return ending.withColumn(start, F.timestamp_micros(begins))


def _session(rows: DataFrame, window: Session, start: str, end: str) -> DataFrame:
    # By times alone: rows of one time are in one session, whichever comes first.
    rows, in_order = saying(rows, **{TIME: _AT}), Over.partitionBy(*window.by).orderBy(_AT)
    before = F.max(_AT).over(in_order.rangeBetween(Over.unboundedPreceding, -1))
    opens = F.when(F.col(_AT) - before <= window.gap, F.lit(None)).otherwise(F.col(_AT))
    begins = F.max("_opens").over(in_order.rangeBetween(Over.unboundedPreceding, 0))
    begun = rows.withColumn("_opens", opens).withColumn(start, F.timestamp_micros(begins))
    last = F.max(_AT).over(Over.partitionBy(*window.by, start))
    return saying(begun.withColumn(end, F.timestamp_micros(last + window.gap)), **{CHAINED: True, MICROS: window.gap})


_PLACED: Final[Mapping[type, Callable[[DataFrame, Any, str, str], DataFrame]]] = {
    Tumbling: _tumbling, Hopping: _hopping, Cumulative: _cumulative, Session: _session,
}  # fmt: skip


def sliding(on: str, size: Lasting, *, by: str | Sequence[str]) -> WindowSpec:
    """Return a window for each row: the rows with equal values in ``by`` that are at most ``size`` earlier, and itself.

    For the function of a view over partitions. Rows of the same time count, to the microsecond. Rows without a time
    have each other in their windows.

    Args:
        on: A timestamp column.
        size: The length of the window.
        by: The columns of the partition.

    Raises:
        InvalidDefinition: The size is below zero, or in months.

    Examples:
        >>> F.count("*").over(sliding("at", "1 hour", by="customer_id"))
    """
    micros = promises.exact(size, what="size")
    if micros < 0:
        raise InvalidDefinition(f"size {size!r} is negative", remedy="say how long before its row a window begins")
    return Over.partitionBy(*as_columns(by)).orderBy(F.unix_micros(on)).rangeBetween(-micros, Over.currentRow)


class History:
    """The function of a history, which is handed versions as rows."""

    takes_versions = True

    def __init__(self, validity: Validity, key: Sequence[str], parameter: inspect.Signature) -> None:
        self.validity = validity
        self._key = key
        self.__signature__ = parameter
        self.signature = f"history {validity}"

    def __call__(self, versions: DataFrame) -> DataFrame:
        """The versions of each key, which are handed with their times."""
        columns = [column for column in versions.columns if column not in (FROM, TO)]
        start, end = F.col(FROM).alias(self.validity.start), F.col(TO).alias(self.validity.end)
        rows = versions if self.validity.keep is None else self._young(versions, self.validity.keep)
        return rows.select(*columns, start, end, F.col(TO).isNull().alias(CURRENT))

    def _young(self, versions: DataFrame, keep: int) -> DataFrame:
        """Without those that ended too long before the newest change of their row.

        Not before now: a batch, a rebuild and a comparison at other times would have other rows.
        """
        changed = F.greatest(F.unix_micros(FROM), F.unix_micros(TO))
        newest = versions.withColumn("_newest", F.max(changed).over(Over.partitionBy(*self._key)))
        return newest.where(F.col(TO).isNull() | (F.unix_micros(TO) + keep >= F.col("_newest")))
