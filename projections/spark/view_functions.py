"""View functions on Spark: their columns, and what is refused before anything runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from projections.columns import ColumnType, Kind
from projections.errors import InvalidDefinition, UnknownColumn
from projections.group import ProjectionGroup
from projections.spark.failures import told_plainly
from projections.tables import checked_identifier
from projections.views import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KINDS: Mapping[str, Kind] = {
    "string": "string", "tinyint": "int", "smallint": "int", "int": "int", "bigint": "long", "float": "double",
    "double": "double", "boolean": "boolean", "timestamp": "timestamp", "date": "date", "binary": "binary",
}  # fmt: skip
# Operators that look beyond the rows a key references, or answer differently every time.
_REFUSED = {
    "Window": "a window over the whole table", "GlobalLimit": "a limit", "LocalLimit": "a limit", "Sample": "a sample",
    "Aggregate": "an aggregate", "rand(": "a random value", "uuid(": "a random value", "shuffle(": "a random order",
    "current_timestamp(": "the time of day", "now(": "the time of day", "monotonically_increasing_id(": "a row number",
}  # fmt: skip


def view_columns(spark: SparkSession, group: ProjectionGroup) -> dict[str, dict[str, ColumnType]]:
    """The columns each view of the group returns, found by planning its function over empty tables.

    Raises UnknownColumn or InvalidDefinition, naming the view.
    """
    return {view.name: _columns_of(spark, view) for view in group.views}


def _columns_of(spark: SparkSession, view: View) -> dict[str, ColumnType]:
    with told_plainly(f"view {view.name}"):
        frames = [spark.createDataFrame([], _ddl(table.columns)) for table in view.tables.values()]
        result = view(*frames)
        _refuse_unbounded(view, result)
        schema = result.schema
    columns = {
        checked_identifier(f.name, what="view column"): _column_type(f.dataType.simpleString(), f"{view.name}.{f.name}")
        for f in schema.fields
    }
    if len(columns) != len(schema.fields):
        raise InvalidDefinition(f"view {view.name!r} returns a column name twice", remedy="give each an alias")
    if view.key not in columns:
        raise UnknownColumn(
            f"view {view.name!r} does not return its key {view.key!r}",
            remedy=f"select it too; returned are: {', '.join(columns)}",
            place=f"view {view.name}",
        )
    return columns


def _ddl(columns: Mapping[str, ColumnType]) -> str:
    return ", ".join(f"`{name}` {column.ddl}" for name, column in columns.items())


def _column_type(simple: str, place: str) -> ColumnType:
    if digits := re.fullmatch(r"decimal\((\d+),(\d+)\)", simple):
        return ColumnType("decimal", int(digits[1]), int(digits[2]))
    if simple in _KINDS:
        return ColumnType(_KINDS[simple])
    raise InvalidDefinition(
        f"a view column cannot be of type {simple}", remedy="select its parts, or cast it", place=place
    )


def _refuse_unbounded(view: View, result: DataFrame) -> None:
    """Look for refused operators in the analysed plan.

    A changed row must reach the view through references alone, and the same rows must give the same result.
    """
    analysed = result._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 - the plan has no Python face
    for mark, meaning in _REFUSED.items():
        found = re.search(rf"\b{re.escape(mark)}", analysed)
        if found:
            raise InvalidDefinition(
                f"view {view.name!r} uses {meaning}",
                remedy="a view joined by foreign keys may use only the rows that its references reach",
                place=f"view {view.name}",
            )
