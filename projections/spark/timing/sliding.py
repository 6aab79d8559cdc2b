"""Windows that belong to one row each: the rows of its partition within a time before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.errors import InvalidDefinition
from projections.timing import lengths
from projections.timing.lengths import Lasting
from projections.views import as_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.window import WindowSpec


def sliding(on: str, size: Lasting, *, by: str | Sequence[str]) -> WindowSpec:
    """Return the window of each row: the rows with its values in ``by``, at most ``size`` earlier, and itself.

    For use in the function of a view over partitions, ``F.count("*").over(sliding("at", "1 hour", by="customer_id"))``.
    ``on`` names a timestamp column. A row exactly ``size`` earlier counts, to the microsecond, and so do all rows of
    the same time. Rows without a time have each other in their windows. Raises InvalidDefinition for a size below zero
    or of months.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    micros = lengths.exact(size, what="size")
    if micros < 0:
        raise InvalidDefinition(f"size {size!r} is negative", remedy="say how long before its row a window begins")
    return Window.partitionBy(*as_columns(by)).orderBy(F.unix_micros(on)).rangeBetween(-micros, Window.currentRow)
