"""Deleted rows up to their horizon in Delta Lake: a row says when it was deleted, and all that are due go in one write.

The same rules as `projections.stores.horizon` has in databases. Each file's statistics have the earliest deletion
in it: a query opens only files with due rows. How far in its source each table has lost rows is in a table of the
generation, at the version that the ledger names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from projections.declaring.columns import ColumnType
from projections.declaring.tables import BELOW_STREAMED, ChangelogTable, Table
from projections.spark.exchange import few_rows
from projections.spark.lakehouse.places import StatePlace
from projections.spark.lakehouse.versioned import VersionedTable
from projections.stores.horizon import Passed, older_than_horizon
from projections.stores.layout import AT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIME: Final = {AT: ColumnType("long")}  # of a deletion here, in seconds since 1970; null in a row that is there
_SCHEMA: Final = pa.schema([
    ("table_name", pa.string()), ("epoch", pa.int64()), ("place", pa.int64()), ("settled", pa.int64()),
])  # fmt: skip


def timed(rows: DataFrame) -> DataFrame:
    """Rows of a state with the time of their deletion, which is now."""
    from pyspark.sql import functions as F

    return rows.withColumn(AT, F.when(F.col("_deleted"), F.lit(int(time.time())).cast("bigint")))


def replace_state(state: VersionedTable, rows: DataFrame) -> int:
    """Make these rows, timed, all of a state; returns their version. By that time alone rows are looked up in it."""
    return state.replace(timed(rows), looked_up=AT)


def ensure(place: StatePlace, *, at: int) -> int | None:
    """Give a state that was built without times its column, and its deleted rows the time of now; its new version."""
    if AT in place.state.columns(at):
        return None
    return replace_state(place.state, place.state.rows(at))


def let_go(place: StatePlace, *, at: int, before: int) -> tuple[int, Passed] | None:
    """Settle what was deleted up to ``before``; returns the state's new version, and what went; None for nothing."""
    lost = place.table.lost_at_horizon
    if lost is None:
        return None
    due = f"_deleted AND {AT} <= {before}"
    passed = _passed(place.state.rows(at).where(due))
    if not passed.settled:
        return None
    if lost:
        return place.state.update(due, dict.fromkeys([*lost, AT], "NULL"), at=at), passed
    return place.state.delete(due, at=at), passed


def _passed(rows: DataFrame) -> Passed:
    from pyspark.sql import functions as F

    last = F.max(F.struct(F.col("_epoch").alias("epoch"), _place().alias("place"))).alias("last")
    row = rows.agg(F.count("*").alias("rows"), last).toArrow().to_pylist()[0]
    return Passed(**row["last"], settled=row["rows"]) if row["rows"] else Passed()


def _place() -> Column:
    """Where in the source a row is from, a snapshot's too."""
    from pyspark.sql import functions as F

    return F.when(F.col("_pos") < 0, F.col("_pos") + BELOW_STREAMED).otherwise(F.col("_pos"))


def require_newer(rows: DataFrame, table: Table, passed: Passed | None) -> None:
    """Raise OlderThanHorizon for a change of a row that the state does not have, if it may have lost that row."""
    from pyspark.sql import functions as F

    if passed is None or not isinstance(table, ChangelogTable):
        return
    last = F.struct(*(F.lit(value).cast("bigint") for value in (passed.epoch, passed.place)))
    older = F.struct(F.col("_epoch"), _place()) <= last
    for row in rows.where(older & ~F.col("_deleted")).select(*table.key).take(1):
        raise older_than_horizon(table.topic, key=tuple(row))


def write_passed(table: VersionedTable, passed: Mapping[str, Passed], *, at: int | None) -> int:
    """Note how far tables have lost rows, in a version of the table or in none yet; returns the new version."""
    noted = [{"table_name": name, **vars(one)} for name, one in passed.items()]
    rows = few_rows(table.spark, pa.Table.from_pylist(noted, _SCHEMA))
    return table.put(rows, ("table_name",), at=at)


def read_passed(table: VersionedTable, *, at: int | None) -> dict[str, Passed]:
    """How far tables have lost rows, by their names, as a version says."""
    if at is None:
        return {}
    rows = table.rows(at).toArrow().to_pylist()
    return {row.pop("table_name"): Passed(**row) for row in rows}
