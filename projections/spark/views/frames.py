"""The DataFrames a view's function is called with: a live batch's slices and whole tables are prepared alike.

What ``as_of`` has to know of a column travels in the column's metadata, which Spark keeps through selections, filters
and joins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from projections.declaring.any_table import AnyTable
from projections.declaring.event_versions import FROM, TO, EventVersions
from projections.declaring.streams import EventStream
from projections.declaring.tables import VersionTable
from projections.declaring.views import Input, View, ViewTable
from projections.planning.marks import ENTRY, ROW_KEY
from projections.spark.changes.versions import with_times, with_validity
from projections.spark.events.versions import with_states
from projections.spark.nesting import opened_up
from projections.spark.views.conditions import row_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME = "factfold.event_time"  # of a stream's column
TABLE, KEY = "factfold.table", "factfold.key"  # of the versions' _valid


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
    table = view.table(name)
    if isinstance(table, EventVersions):
        return _valid_at_some_time(with_states(rows, table))
    if isinstance(table, VersionTable) and view.by:
        return _valid_at_some_time(with_times(rows, table))
    if isinstance(table, VersionTable):
        return _marked(with_validity(rows, table), {"_valid": {TABLE: name, KEY: table.key[0]}})
    marks = _marks_of_key(table) if view.by else {}
    if isinstance(table, EventStream):
        marks.setdefault(table.time, {})[TIME] = True
    return _marked(rows, marks) if marks else rows


def _valid_at_some_time(versions: DataFrame) -> DataFrame:
    """Versions with their times as timestamps. Of two that begin at one time, the first was never valid."""
    from pyspark.sql import functions as F

    lasting = F.col(FROM).isNull() | F.col(TO).isNull() | (F.col(FROM) < F.col(TO))
    return versions.where(lasting).withColumns({time: F.timestamp_micros(time) for time in (FROM, TO)})


def _marks_of_key(table: AnyTable) -> dict[str, dict[str, Any]]:
    """Which columns distinguish a table's rows, and which of them contains an event's version."""
    entries = _entries(table)
    return {column: {ROW_KEY: True} | ({ENTRY: True} if column in entries else {}) for column in table.key}


def _entries(table: Input) -> tuple[str, ...]:
    """The columns of a key that are id@version: of a stream of events, and of a view of their windows."""
    definition = table.view if isinstance(table, ViewTable) else table
    if isinstance(definition, View) and definition.windows is not None:
        (source,) = definition.tables.values()
        return _entries(source)
    return definition.key if isinstance(definition, EventStream) and definition.id_column is not None else ()


def _marked(rows: DataFrame, marks: Mapping[str, Mapping[str, Any]]) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.select(*(F.col(c).alias(c, metadata=marks[c]) if c in marks else F.col(c) for c in rows.columns))
