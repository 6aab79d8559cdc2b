"""The DataFrames a view's function is called with: a live batch's slices and whole tables are prepared alike.

What ``join_versions`` has to know of a column travels in the column's metadata, which Spark keeps through selections,
filters and joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from projections.declaring.any_table import AnyTable
from projections.declaring.tables import Table
from projections.declaring.views import View
from projections.spark.kinds import kind_of
from projections.spark.nesting import opened_up
from projections.spark.table_kind import marked, marks_of_key
from projections.spark.views.conditions import row_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        return kind_of(table).handed(rows, name, partitioned=partitioned)
    return marked(rows, marks_of_key(table) if partitioned else {})
