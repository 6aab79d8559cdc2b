"""What a batch changes in a view that looks at rows near in time: where results before and after the batch differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections.declaring.columns import ColumnType
from projections.declaring.views import View
from projections.spark.exchange import in_table_order
from projections.spark.views.partials import stored_columns
from projections.stores.layout import SIDE

_ROW, _IS_NEW, _BEFORE, _AFTER = "_row", "_is_new", "_before", "_after"
_DELETED: Final = {"_deleted": ColumnType("boolean")}


def differing(view: View, frames: Mapping[str, DataFrame], columns: Mapping[str, ColumnType]) -> DataFrame:
    """The rows that are others after the batch, and those that are not there any more, marked as deleted.

    ``frames`` holds the rows near the changed ones, with the side of each.
    """
    before, after = (_result(view, frames, columns, of_side) for of_side in (F.col(SIDE) <= 0, F.col(SIDE) >= 0))
    row = F.struct(*columns).alias(_ROW)
    both = before.select(row, F.lit(False).alias(_IS_NEW)).union(after.select(row, F.lit(True).alias(_IS_NEW)))
    keyed = both.select("*", *(F.col(_ROW)[name].alias(name) for name in view.key))
    sides = {_BEFORE: ~F.col(_IS_NEW), _AFTER: F.col(_IS_NEW)}
    found = (F.first(F.when(is_of, F.col(_ROW)), ignorenulls=True).alias(side) for side, is_of in sides.items())
    changed = keyed.groupBy(*view.key).agg(*found).where(~F.col(_BEFORE).eqNullSafe(F.col(_AFTER)))
    # A deleted row with its values, by which it may be one that does not change any more.
    rows = changed.select(F.coalesce(_AFTER, _BEFORE).alias(_ROW), F.col(_AFTER).isNull().alias("_deleted"))
    return in_table_order(rows.select(f"{_ROW}.*", "_deleted"), {**columns, **_DELETED})


def _result(
    view: View, frames: Mapping[str, DataFrame], columns: Mapping[str, ColumnType], of_side: Column
) -> DataFrame:
    typed = {name: in_table_order(frames[name].where(of_side), view.table(name).opened) for name in view.tables}
    return stored_columns(view, typed, columns)
