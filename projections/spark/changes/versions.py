"""Debezium's change events as versions of their rows, and the time for which each version is valid.

Versions are ordered by their place in the source. Valid at a time t is the last version of those that are valid from t
or before. The newest version therefore wins in the end, even if the source's clock was set back between two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from projections.declaring.event_versions import FROM, TO
from projections.declaring.tables import VALID_FROM, VersionTable
from projections.spark.changes.absent import absent_columns, listed
from projections.spark.changes.change_events import missing, parsed_columns, typed_columns
from projections.spark.changes.parsers import RecordParser
from projections.spark.failures import refuse
from projections.spark.gathering import gathered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

# Microseconds that no timestamp reaches.
BEGINNING, END = -(1 << 62), 1 << 62
TIMES = ("ts_us", "ts_ns", "ts_ms")  # of the change event's source; older connectors have the last only


def prepare_versions(table: VersionTable, parser: RecordParser) -> Callable[[DataFrame], DataFrame]:
    """The step from raw records to one row a change, with the staging columns of ``layout``.

    A record that comes twice gives one row. A tombstone gives none: the deletion before it is the version.
    """
    from pyspark.sql import functions as F

    varying = table.sometimes_unavailable
    parsed = parsed_columns(table, parser, times=TIMES)
    lacking = absent_columns(table, parser)
    refused = refuse("column_absent_in_version", listed(lacking)).cast("bigint")
    since = F.when(F.length(lacking) > 0, refused).otherwise(_committed())
    typed = [*typed_columns(table, parser, varying), since.alias(VALID_FROM)]
    unset = F.concat_ws(",", *(F.when(F.col(missing(c)), F.lit(c)) for c in varying))
    row = F.struct(*table.payload, VALID_FROM, F.nullif(unset, F.lit("")).alias("_unset"), "_op", "_offset")
    first = F.min_by(row, F.col("_offset")).alias("row")
    result: list[Column | str] = [*table.key, *_result(table)]

    def versions(raw: DataFrame) -> DataFrame:
        changes = raw.where("value IS NOT NULL").select(*parsed).select(*typed)
        return gathered(changes, [*table.key, "_epoch", "_pos"]).agg(first).select(*result)

    return versions


def _committed() -> Column:
    """When the change's transaction was committed, in microseconds; a snapshot's row, when it was read."""
    from pyspark.sql import functions as F

    return F.coalesce(committed_at(), refuse("no_source_time").cast("bigint"))


def committed_at() -> Column:
    """The same, null where the change event does not say."""
    from pyspark.sql import functions as F

    us, ms = F.col("v.source")["ts_us"], F.col("v.source")["ts_ms"] * 1000
    ns = F.expr("v.source.ts_ns div 1000")  # in whole numbers: `/` gives a double, which has fewer digits
    return F.coalesce(us, ns, ms)


def _result(table: VersionTable) -> list[Column]:
    from pyspark.sql import functions as F

    row = F.col("row")
    varying = {c: F.when(~_is_unset(row["_unset"], c), row[c]) for c in table.sometimes_unavailable}
    return [
        *(varying.get(c, row[c]).alias(c) for c in table.payload),
        row[VALID_FROM].alias(VALID_FROM),
        row["_unset"].alias("_unset"),
        F.col("_epoch"),
        F.col("_pos"),
        row["_offset"].alias("_offset"),
        (row["_op"] == "d").alias("_deleted"),
    ]


def _is_unset(names: Column, column: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.array_contains(F.split(names, ","), column), F.lit(False))


def lacks_first_values(table: VersionTable) -> Column:
    """Over versions of whole histories: whether one is the first of its key and yet lacks a value."""
    from pyspark.sql import functions as F

    return F.col("_unset").isNotNull() & (F.row_number().over(_in_order(table)) == 1)


def with_validity(rows: DataFrame, table: VersionTable) -> DataFrame:
    """The versions that stand for a row, whole, each with ``_valid``: its key, since when and until when.

    Times are microseconds since 1970, from the first (inclusive) to the second. The first version that is known of a
    key is valid from the beginning of time if it is from a snapshot: its real beginning is not known.
    """
    from pyspark.sql import functions as F

    since, until = (F.coalesce(at, F.lit(bound)) for at, bound in ((FROM, BEGINNING), (TO, END)))
    valid = F.struct(F.col(table.key[0]).alias("key"), since.alias("since"), until.alias("until"))
    return with_times(rows, table).select(*table.columns, valid.alias("_valid"))


def with_times(rows: DataFrame, table: VersionTable) -> DataFrame:
    """The same with the times as two more columns: null for the beginning of time, and for versions still valid."""
    from pyspark.sql import functions as F

    in_order = _in_order(table)
    from_snapshot = (F.col("_pos") < 0) & (F.row_number().over(in_order) == 1)
    since = F.when(~from_snapshot, F.col(VALID_FROM))
    # From the last one backwards: Spark computes a window that grows at its far end once a row, not once a pair.
    later = _in_order(table, backwards=True).rowsBetween(_WHOLE, -1)
    until = F.min(VALID_FROM).over(later)
    whole = [_filled(c, in_order) if c in table.sometimes_unavailable else F.col(c) for c in table.columns]
    return (
        rows.select(*whole, since.alias(FROM), until.alias(TO), "_deleted").where(~F.col("_deleted")).drop("_deleted")
    )


_WHOLE = -(1 << 63)  # pyspark's Window.unboundedPreceding, without importing it


def _in_order(table: VersionTable, *, backwards: bool = False) -> WindowSpec:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = [F.col(c).desc() if backwards else F.col(c) for c in ("_epoch", "_pos")]
    return Window.partitionBy(*table.key).orderBy(*place)


def _filled(column: str, in_order: WindowSpec) -> Column:
    """An unavailable value is that of the version before; a null that was sent stays one."""
    from pyspark.sql import functions as F

    unavailable = _is_unset(F.col("_unset"), column)
    sent = F.when(~unavailable & ~F.col("_deleted"), F.struct(F.col(column).alias("value")))
    last = F.last(sent, ignorenulls=True).over(in_order.rowsBetween(_WHOLE, 0))
    return F.when(unavailable, last["value"]).otherwise(F.col(column)).alias(column)
