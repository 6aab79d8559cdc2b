"""What a batch brings for one table, made whole by the stored rows of its keys; what is known already is dropped.

The same steps as `projections.stores.staging` takes in SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from projections.declaring.columns import ColumnType
from projections.declaring.tables import EventTable, Table, set_at
from projections.spark.exchange import in_table_order
from projections.spark.lakehouse.horizon import TIME, require_newer, timed
from projections.spark.lakehouse.materialized import Materialized, all_of, any_of, materialized, within
from projections.stores.facts import unavailable_value
from projections.stores.gaps import events_missing
from projections.stores.horizon import Passed
from projections.stores.layout import POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LONG, _FLAG = ColumnType("long"), ColumnType("boolean")


def state_columns(table: Table) -> dict[str, ColumnType]:
    """The columns of a table's state."""
    return {**table.stored, **dict.fromkeys(POSITION, _LONG), "_deleted": _FLAG, **TIME}


@dataclass(frozen=True)
class Staged:
    """The rows that a batch brings, each joined with the stored row of its key, whose columns begin with ``_was_``."""

    table: Table
    joined: Materialized
    passed: Passed | None = None

    @staticmethod
    def of(brought: DataFrame, table: Table, stored: DataFrame, passed: Passed | None = None) -> Staged:
        """Look up, once, what is stored of the keys; ``passed`` is how far the table has lost deleted rows."""
        rows = materialized(timed(brought)).rows
        known = within(stored, table.row_key, rows.select(*table.row_key))  # of which no part is null
        names = list(state_columns(table))
        was = known.select(*names).toDF(*(_was(name) for name in names))
        same = all_of([rows[column] == was[_was(column)] for column in table.row_key])
        return Staged(table, materialized(rows.join(was, same, "left")), passed)

    @cached_property
    def gaps(self) -> list[Any]:
        """Streams of which a version is missing: their key, the stored version (-1 for none), the first behind it.

        The same condition as `projections.stores.gaps`.
        """
        if not isinstance(self.table, EventTable):
            return []
        known = F.coalesce(F.col(_was("_pos")), F.lit(-1))
        first = F.col("_first")
        incomplete = self.joined.rows.where((first > known + 1) & ~F.col("_deleted"))
        key = F.col(self.table.key[0]).alias("key")
        return incomplete.select(key, known.alias("known"), first.alias("first")).collect()

    def whole(self) -> Materialized:
        """The rows that are newer than the stored ones, as the state has them.

        EventsMissing, UndecodableRecord, OlderThanHorizon.
        """
        if self.gaps:
            raise events_missing(self.table.topic, self.gaps[0])
        rows = self.joined.rows
        events = isinstance(self.table, EventTable)
        rows = self._deleted_at_once(rows) if events else self._passed_over(self._placed(rows))
        rows = rows.where(self._is_newer())
        if not events:
            self._require_known(rows)
            require_newer(rows.where(F.col(_was("_pos")).isNull()), self.table, self.passed)
        return materialized(in_table_order(rows.select(*self._columns()), state_columns(self.table)))

    def _placed(self, rows: DataFrame) -> DataFrame:
        """A tombstone alone takes the position of its key's stored row; without one there is nothing to delete."""
        alone = F.col("_pos").isNull()
        placed = {c: F.when(alone, F.col(_was(c))).otherwise(F.col(c)) for c in ("_epoch", "_pos")}
        return rows.withColumns(placed).where(F.col("_pos").isNotNull())

    def _deleted_at_once(self, rows: DataFrame) -> DataFrame:
        """By the first of a stream's tombstones, though those of its last events come in the next batch."""
        last = F.greatest("_pos", _was("_pos"))  # which leaves nulls out
        return rows.withColumn("_pos", F.when(F.col("_deleted"), last).otherwise(F.col("_pos")))

    def _passed_over(self, rows: DataFrame) -> DataFrame:
        """Let a row that is there know the tombstone of an old deletion, which stands right behind it."""
        ours, theirs = (F.struct(*(F.col(name(p)).alias(p) for p in ("_epoch", "_pos"))) for name in (str, _was))
        follows = F.col("_offset") >= F.col(_was("_offset"))
        passed = F.col("_deleted") & ~F.col(_was("_deleted")) & (ours < theirs) & follows
        again = {c: F.col(_was(c)) for c in state_columns(self.table)} | {"_offset": F.col("_offset") + 1}
        return rows.withColumns({c: F.when(passed, known).otherwise(F.col(c)) for c, known in again.items()})

    def _is_newer(self) -> Column:
        ours, theirs = F.struct(*POSITION), F.struct(*(F.col(_was(p)).alias(p) for p in POSITION))
        return F.col(_was("_pos")).isNull() | (ours > theirs)

    def _columns(self) -> list[Column]:
        """What the batch did not set after the stored row is taken from it: declared columns, unavailable values."""
        stored_parts = {
            part: self._is_taken_from_stored(c) for c in self.table.sometimes_unset for part in self.table.parts(c)
        }
        return [
            F.when(stored_parts[c], F.col(_was(c))).otherwise(F.col(c)).alias(c) if c in stored_parts else F.col(c)
            for c in state_columns(self.table)
        ]

    def _is_taken_from_stored(self, column: str) -> Column:
        at = F.col(set_at(column))
        return self._is_of_known_life() & (at.isNull() | (at <= F.col(_was("_pos"))))

    def _is_of_known_life(self) -> Column:
        """Whether the row is stored already; two lives of a source say nothing of each other."""
        return F.col(_was("_pos")).isNotNull() & (F.col("_epoch") == F.col(_was("_epoch")))

    def _require_known(self, rows: DataFrame) -> None:
        """A row that is new in its life has every value; else its earlier record is missing."""
        unset = {c: F.col(set_at(c)).isNull() for c in self.table.sometimes_unset}
        if not unset:
            return
        orphans = rows.where(any_of(list(unset.values())) & ~self._is_of_known_life() & ~F.col("_deleted"))
        for row in orphans.select(self.table.key[0], *(is_unset.alias(c) for c, is_unset in unset.items())).take(1):
            lacking = ", ".join(c for c in unset if row[c])
            raise unavailable_value(self.table.topic, key=row[0], columns=lacking)


def _was(column: str) -> str:
    return f"_was_{column}"
