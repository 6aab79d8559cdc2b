"""The functions of views that say which windows a row is in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from projections.declaring.timing import lengths
from projections.declaring.timing.lengths import DAY, Lasting
from projections.declaring.timing.windows import Cumulative, Hopping, Session, Tumbling, Window, hop_lasts
from projections.declaring.views import as_columns
from projections.errors import InvalidDefinition
from projections.planning.plans import java
from projections.spark.timing.boundaries import added, following, latest
from projections.spark.timing.row_columns import require_time

_AT: Final = "_moment"
_LEAST_MONTH: Final = 28 * DAY


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
    in_order = Over.partitionBy(*window.by).orderBy(_AT)
    before = F.max(_AT).over(in_order.rangeBetween(Over.unboundedPreceding, -1))
    opens = F.when(F.col(_AT) - before <= window.gap, F.lit(None)).otherwise(F.col(_AT))
    begins = F.max("_opens").over(in_order.rangeBetween(Over.unboundedPreceding, 0))
    begun = rows.withColumn("_opens", opens).withColumn(start, F.timestamp_micros(begins))
    last = F.max(_AT).over(Over.partitionBy(*window.by, start))
    return begun.withColumn(end, F.timestamp_micros(last + window.gap))


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
    micros = lengths.exact(size, what="size")
    if micros < 0:
        raise InvalidDefinition(f"size {size!r} is negative", remedy="say how long before its row a window begins")
    return Over.partitionBy(*as_columns(by)).orderBy(F.unix_micros(on)).rangeBetween(-micros, Over.currentRow)
