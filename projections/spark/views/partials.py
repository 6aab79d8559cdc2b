"""Partial aggregates in Spark: computed with a view, and brought forward by what a batch changes in its groups.

Of every aggregate a group stores the number of its values (``_count_0``), and their sum (``_sum_0``), or the least
(``_min_0``) or greatest of them (``_max_0``). What changed rows contributed before is subtracted, what they contribute
now is added. If a least value is removed, any other one may follow: such groups are marked, to be computed whole.

The DataFrames that a view's function is called with are prepared alike for a live batch's slices and whole tables. What
``join_versions`` has to know of a column travels in the column's metadata, which Spark keeps through selections,
filters and joins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from projections.declaring.any_table import AnyTable
from projections.declaring.columns import AFTER, BEFORE, GROUPS, LONG, ROWS, WHOLE, ColumnType, hidden
from projections.declaring.tables import Table
from projections.declaring.views import View
from projections.planning.plans import java
from projections.spark.exchange import in_table_order
from projections.spark.kinds import kind_of as kind_of_table
from projections.spark.nesting import opened_up
from projections.spark.table_kind import marked, marks_of_key
from projections.spark.views.catalyst import as_column, as_expression
from projections.spark.views.conditions import row_condition
from projections.spark.views.grouping import Grouping, Measure, taken_apart

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_ORDERED: Final[Mapping[str, ColumnType]] = {
    "tinyint": ColumnType("int"), "smallint": ColumnType("int"), "int": ColumnType("int"), "bigint": LONG,
    "string": ColumnType("string"), "boolean": ColumnType("boolean"), "date": ColumnType("date"),
    "timestamp": ColumnType("timestamp"), "binary": ColumnType("binary"),
}  # fmt: skip
_EXTREMES: Final = ("min", "max")
_SIGN: Final = "_sign"  # of a part: stored 0, gained 1, lost -1


def call(view: View, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The result of a view's function; ``rows`` holds, by table, the columns that a slice of it has."""
    result: DataFrame = view(*handed(view, rows))
    return result


def handed(view: View, rows: Mapping[str, DataFrame]) -> list[DataFrame]:
    """The function's arguments: versions with their validity, event times and references to versions marked.

    Lists, maps and records are Spark's own. Of a table with a condition they are the rows that it accepts. Up to here
    it has all of them: what a batch reaches includes the rows that met the condition before, and a late record of one
    that does not finds its newer row.
    """
    accepted = {name: _accepted(rows[name], view.table(name)) for name in view.tables}
    return [opened_up(_handed(view, name, some), view.table(name).opened) for name, some in accepted.items()]


def _accepted(rows: DataFrame, table: AnyTable) -> DataFrame:
    return rows if table.condition is None else rows.where(row_condition(table.condition, table.opened))


def _handed(view: View, name: str, rows: DataFrame) -> DataFrame:
    table, partitioned = view.table(name), bool(view.by)
    if isinstance(table, Table):
        return kind_of_table(table).handed(rows, name, partitioned=partitioned)
    return marked(rows, marks_of_key(table) if partitioned else {})


@dataclass(frozen=True)
class Partial:
    """What is stored of a measure: the ``count`` of its values, their ``sum``, the ``min`` or the ``max`` of them."""

    part: str
    measure: Measure
    kind: ColumnType

    @property
    def name(self) -> str:
        """The hidden column."""
        return f"_{self.part}_{self.measure.number}"

    def of_row(self) -> Column:
        """What one row comes to."""
        column = self.measure.column
        if self.part == "count":
            return F.when(column.isNotNull(), F.lit(1)).otherwise(F.lit(0))
        if self.part == "sum":
            return F.coalesce(column.cast(self.kind.ddl), F.lit(0).cast(self.kind.ddl))
        return column

    def of_rows(self) -> Column:
        """What the rows of a group come to."""
        if self.part in _EXTREMES:
            return (F.min if self.part == "min" else F.max)(self.of_row())
        return F.coalesce(F.sum(self.of_row()), F.lit(0))


def partials_of(view: View, result: DataFrame) -> dict[str, ColumnType]:
    """The partial aggregates by which a view can be updated, by name; none if its groups are computed whole.

    Sums of doubles depend on their order. A person's values cannot be subtracted once their key is destroyed. A sum
    that overflowed is null without ANSI mode, and cannot be added to.
    """
    if (
        not view.grouped
        or len(view.tables) > 1
        or view.table(view.root).personal
        or not _is_strict(result.sparkSession)
    ):
        return {}
    grouping = taken_apart(result)
    if grouping is None or set(grouping.by) != (set() if view.within == "all" else set(view.key)):
        return {}
    by_measure = [_partials(measure) for measure in grouping.measures.values()]
    if not all(by_measure) or not grouping.is_known_by_its_parts or not grouping.is_row_by_row:
        return {}
    return {ROWS: LONG} | {partial.name: partial.kind for partials in by_measure for partial in partials}


def _is_strict(spark: SparkSession) -> bool:
    return spark.conf.get("spark.sql.ansi.enabled") == "true"


def _partials(measure: Measure) -> list[Partial]:
    """What is stored of one measure; nothing if its parts do not determine it."""
    count, part = Partial("count", measure, LONG), measure.function
    if not measure.plain:
        return []
    if part == "count":
        return [count]
    if part in ("sum", "avg") and (kind := _sum_type(measure.given)):
        return [count, Partial("sum", measure, kind)]
    if part in _EXTREMES and (kind := _digits(measure.given) or _ORDERED.get(measure.given)):
        return [count, Partial(part, measure, kind)]
    return []


def _sum_type(given: str) -> ColumnType | None:
    """Wide enough for the sum of any integers; Spark's own sum of decimals is ten digits wider than they."""
    if digits := _digits(given):
        return ColumnType("decimal", min(38, digits.precision + 10), digits.scale)
    return ColumnType("decimal", 38, 0) if given in _INTEGERS else None


def _digits(given: str) -> ColumnType | None:
    match = re.fullmatch(r"decimal\((\d+),(\d+)\)", given)
    return ColumnType("decimal", int(match[1]), int(match[2])) if match else None


def stored_columns(view: View, frames: Mapping[str, DataFrame], columns: Mapping[str, ColumnType]) -> DataFrame:
    """The view's function over the given rows, with the partial aggregates that are among the columns."""
    result = call(view, frames)
    if hidden(columns):
        grouping = _grouping(result)
        partials = [partial.of_rows().cast(partial.kind.ddl).alias(partial.name) for partial in _all_partials(grouping)]
        groups = grouping.rows.groupBy(*grouping.keys).agg(F.count(F.lit(1)).alias(ROWS), *partials)
        # Made of the same parts as in a batch: Spark's own mean of integers follows the order of rows beyond 2^53.
        result = groups.select(*hidden(columns), *(column.alias(n) for n, column in _returned(grouping).items()))
    return in_table_order(result, columns)


def _grouping(result: DataFrame) -> Grouping:
    grouping = taken_apart(result)
    assert grouping is not None  # noqa: S101 - partials_of found one in the plan of the same function
    return grouping


def _all_partials(grouping: Grouping) -> list[Partial]:
    return [partial for measure in grouping.measures.values() for partial in _partials(measure)]


def brought_forward(view: View, frames: Mapping[str, DataFrame], columns: Mapping[str, ColumnType]) -> DataFrame:
    """The groups of a view that a batch changes, as they will be; those without rows are missing.

    ``frames`` holds the changed rows BEFORE and AFTER the batch, and what is stored of their GROUPS.
    Where WHOLE is true, the changes do not tell what becomes of the group, and the rest of the row means nothing.
    """
    lost, gained = (_grouping(call(view, {view.root: frames[side]})) for side in (BEFORE, AFTER))
    keys, names = list(view.key), [*view.key, *hidden(columns)]
    constant = [F.lit(0).alias(name) for name in keys if view.within == "all"]  # the one value of all rows
    parts = ((frames[GROUPS], 0), (_contributions(gained, constant), 1), (_contributions(lost, constant), -1))
    stored, added, taken = (frame.select(*names, F.lit(sign).alias(_SIGN)) for frame, sign in parts)
    # As many tasks as groups are gathered in; where that is one, there is no exchange, and the plan is made once.
    tasks = int(str(stored.sparkSession.conf.get("spark.sql.shuffle.partitions")))
    rows = stored.union(added).union(taken).coalesce(tasks)
    groups = rows.groupBy(*keys).agg(*_together(gained)).where(F.lit(view.within == "all") | _has_rows())
    returned = _returned(gained)
    certain = [F.when(~F.col(WHOLE), column).alias(n) for n, column in returned.items() if n not in keys]
    result = groups.select(*(F.col(c) for c in (*names, WHOLE)), *certain)
    return in_table_order(result, {**columns, WHOLE: ColumnType("boolean")})


def _returned(grouping: Grouping) -> dict[str, Column]:
    """What the view returns, computed from the stored parts."""
    return grouping.columns_over({m.number: _final(m, grouping) for m in grouping.measures.values()})


def _contributions(grouping: Grouping, constant: Sequence[Column]) -> DataFrame:
    """What each row contributes, with the columns of its group."""
    partials = [partial.of_row().cast(partial.kind.ddl).alias(partial.name) for partial in _all_partials(grouping)]
    return grouping.rows.select(*constant, *grouping.keys, F.lit(1).cast(LONG.ddl).alias(ROWS), *partials)


def _together(grouping: Grouping) -> list[Column]:
    """The stored parts plus the gained and minus the lost ones, and whether a group must be computed whole."""
    columns, uncertain = [_balance(ROWS).alias(ROWS)], F.lit(False)
    for count, *values in map(_partials, grouping.measures.values()):
        left = _balance(count.name)
        columns.append(left.alias(count.name))
        for value in values:
            together = _balance(value.name) if value.part == "sum" else F.when(left > 0, _extreme(value))
            columns.append(together.cast(value.kind.ddl).alias(value.name))
            if value.part in _EXTREMES:
                uncertain = uncertain | ((left > 0) & _is_lost(value))
    return [*columns, uncertain.alias(WHOLE)]


def _has_rows() -> Column:
    """Whether a group is still there; one of less than no rows is damaged, and stays for ``verify`` to find."""
    return F.col(ROWS) != 0


def _balance(name: str) -> Column:
    return F.sum(F.when(F.col(_SIGN) < 0, -F.col(name)).otherwise(F.col(name)))


def _extreme(value: Partial, *signs: int) -> Column:
    """The least, or greatest, of the stored and the gained parts, or of parts of the given signs."""
    chosen = F.min if value.part == "min" else F.max
    return chosen(F.when(F.col(_SIGN).isin(*(signs or (0, 1))), F.col(value.name)))


def _is_lost(value: Partial) -> Column:
    """Whether the stored extreme may have been taken away, and is not made good."""
    stored = _extreme(value, 0)

    def reaches(one: Column) -> Column:
        return F.coalesce(one <= stored if value.part == "min" else one >= stored, F.lit(False))

    return reaches(_extreme(value, -1)) & ~reaches(_extreme(value, 1))


def _final(measure: Measure, grouping: Grouping) -> Column:
    """The aggregate, out of its parts, as Spark would have it."""
    count, *values = (F.col(partial.name) for partial in _partials(measure))
    result = measure.result.simpleString()
    if not values:
        return count
    if measure.function != "avg":
        return F.when(_is_known(count), values[0].cast(result))
    if result == "double":
        return F.when(_is_known(count), values[0].cast(result) / count.cast(result))
    return F.when(_is_known(count), _divided(values[0], count, measure, grouping))


def _is_known(count: Column) -> Column:
    """Null is the aggregate of no values, except for their number."""
    return count > 0


def _divided(total: Column, count: Column, measure: Measure, grouping: Grouping) -> Column:
    """As an average of decimals divides: rounded once, to the digits of its result; a plain division rounds before."""
    spark = grouping.rows.sparkSession
    catalyst = java(spark).org.apache.spark.sql.catalyst.expressions  # there is no function for it
    parts = (as_expression(spark, part) for part in (total, count.cast("decimal(20,0)")))
    return as_column(spark, catalyst.DecimalDivideWithOverflowCheck(*parts, measure.result, None, False))
