"""What a batch changes in a view: the function's result compared with the stored rows of the affected keys.

The same rules as `projections.stores.differences` has in SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from projections.declaring.views import Unmatched, View
from projections.spark.lakehouse.materialized import Materialized, all_of, materialized, union, within
from projections.spark.lakehouse.places import DeltaViewPlace
from projections.spark.lakehouse.reach import Reach
from projections.stores.differences import not_of_the_root, returned_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class ViewChange:
    """What a batch changes in a view; ``rows`` has those to retract marked in ``_deleted``, their values as stored."""

    rows: Materialized
    retractions: int

    @property
    def upserts(self) -> int:
        """Rows that are new or other than before."""
        return self.rows.count - self.retractions


def change_of(place: DeltaViewPlace, result: DataFrame, stored: DataFrame, reach: Reach) -> ViewChange:
    """Compare a result of the view's function, over what the batch reaches, with the stored rows of those keys.

    KeyNotUnique where the function returned a key twice, null, or one of no row that it was given.
    """
    view, key = place.definition, place.definition.key
    mine = materialized(_determined(view, result, reach)).rows
    require_unique(place, mine)
    _require_affected(view, mine, reach)
    before = _reached(view, stored, reach)
    was = before.toDF(*(f"_was_{c}" for c in before.columns)).withColumn("_was", F.lit(True))
    same_key = all_of([mine[c].eqNullSafe(F.col(f"_was_{c}")) for c in key])
    joined = mine.withColumn("_is", F.lit(True)).join(was, same_key, "full")
    changed = joined.where(~(F.col("_is").isNotNull() & F.col("_was").isNotNull() & _same(place, joined)))
    retracted = F.col("_is").isNull()
    values = [F.when(retracted, F.col(f"_was_{c}")).otherwise(F.col(c)).alias(c) for c in place.columns]
    rows = materialized(changed.select(*values, retracted.alias("_deleted")))
    return ViewChange(rows, rows.count_of("_deleted"))


def _same(place: DeltaViewPlace, joined: DataFrame) -> Column:
    return all_of([joined[c].eqNullSafe(joined[f"_was_{c}"]) for c in place.columns])


def _reached(view: View, stored: DataFrame, reach: Reach) -> DataFrame:
    """The stored rows whose part of any side is affected."""
    parts = [within(stored, view.root_key, reach.affected[view.root].rows, nullable=_root_nullable(view, reach))]
    parts += [within(stored, side.columns, reach.affected[side.table].rows) for side in view.unmatched]
    return parts[0] if len(parts) == 1 else union(parts).dropDuplicates(list(view.key))


def _root_nullable(view: View, reach: Reach) -> bool:
    return bool(view.by) or reach.roles[view.root].nullable


def require_unique(place: DeltaViewPlace, rows: DataFrame) -> None:
    """Raise KeyNotUnique for a key that comes twice, or that is null where it must not be."""
    view = place.definition
    nulls = [F.col(c).isNull() for c in view.key]
    null: Column = F.lit(False)
    if not view.key_may_be_null:
        null = ~all_of([~one for one in nulls])
    elif view.unmatched:
        null = all_of(nulls)
    repeated = rows.groupBy(*view.key).agg(F.count("*").alias("_times")).where((F.col("_times") > 1) | null)
    for row in repeated.take(1):
        raise returned_key(view, tuple(row[c] for c in view.key))


def _require_affected(view: View, rows: DataFrame, reach: Reach) -> None:
    """A row under another key than its root's would never be retracted."""
    part = view.root_key
    mine = rows.where(F.col(part[0]).isNotNull()) if view.unmatched else rows
    nullable = _root_nullable(view, reach)
    for row in within(mine, part, reach.affected[view.root].rows, nullable=nullable, how="left_anti").take(1):
        raise not_of_the_root(view, tuple(row[c] for c in part))


def _determined(view: View, result: DataFrame, reach: Reach) -> DataFrame:
    """Without rows of sides that were only looked up: whether they stand alone depends on rows that the slices lack."""
    if not view.unmatched:
        return result
    alone: Column = F.col(view.root_key[0]).isNull()
    for side in _from_the_root(view, reach):
        is_its = alone & F.col(side.columns[0]).isNotNull()
        known = within(result.where(is_its), side.columns, reach.affected[side.table].rows)
        result = result.where(~is_its).union(known)
        alone = alone & F.col(side.columns[0]).isNull()
    return result


def _from_the_root(view: View, reach: Reach) -> Sequence[Unmatched]:
    return sorted(view.unmatched, key=lambda side: reach.plan.downwards.index(side.table))
