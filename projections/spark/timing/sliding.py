"""Windows that belong to one row each: the rows of its partition within a time before it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from projections.declaring.timing import lengths
from projections.declaring.timing.lengths import Lasting
from projections.declaring.views import as_columns
from projections.errors import InvalidDefinition


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
    return Window.partitionBy(*as_columns(by)).orderBy(F.unix_micros(on)).rangeBetween(-micros, Window.currentRow)
