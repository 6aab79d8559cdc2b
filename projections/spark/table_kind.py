"""What Spark does with a table of one kind: records to rows, their faults, whole states, the argument of a view.

A kind is a class here below and a declaration in ``projections.declaring``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from eventstore.schema_registry import RegisteredSchema
from projections.declaring.any_table import AnyTable
from projections.declaring.tables import FROM, TO, Table
from projections.faults import NEVER_ASIDE
from projections.planning.plans import ENTRY, ROW_KEY
from projections.spark.failures import AT, FAULT, refuse, refuse_fault
from projections.stores.layout import POSITION

Registry = Mapping[int, RegisteredSchema]
Step = Callable[["DataFrame"], "DataFrame"]
Fold = Callable[["DataFrame", "DataFrame | None"], "DataFrame"]
T = TypeVar("T", bound=Table)


class TableKind(ABC, Generic[T]):
    """How Spark reads the records of a table."""

    gap = "unavailable"  # the fault of a row that an earlier record would complete
    always_read = "_type"  # the column of decoded records that every fold reads: without it a bad record would pass

    def __init__(self, table: T) -> None:
        self.table = table

    @abstractmethod
    def steps(self, registry: Registry) -> tuple[Step, Fold]:
        """From raw records to decoded ones, each with its place and its fault, and from these to staged rows.

        The rows are one a key (of a stream, a fact; of versions, a change), with the table's staging columns. The
        second argument of a fold is for one that needs the stored rows.
        """

    def reduction(self, registry: Registry) -> Fold:
        """From raw records to staged rows; the query fails for a record with a fault."""
        decode, fold = self.steps(registry)
        sound = self.refusing(decode)
        return lambda raw, stored: fold(sound(raw), stored)

    def refusing(self, decode: Step) -> Step:
        """The decoding step, in a query that fails for a record with a fault.

        Spark may not move a filter below what depends on a partition. Moved, it would decode a record for each part of
        its condition.
        """
        here = F.spark_partition_id() >= 0
        sound = F.when(F.col(FAULT).isNull() & here, F.col(self.always_read)).otherwise(refuse_fault(F.col(FAULT)))
        return lambda raw: decode(raw).withColumn(self.always_read, sound)

    def questions(self, registry: Registry) -> Iterator[Step]:
        """From raw records to their places and faults; each step is right where the earlier ones find none."""
        decode, _ = self.steps(registry)
        faults = F.array_compact(F.array(F.when(~F.col(FAULT)["kind"].isin(*NEVER_ASIDE), F.col(FAULT))))
        # A filter would be moved below the decoded columns, and decode a record once for each of its questions.
        yield lambda raw: decode(raw).select(f"{AT}.*", F.explode(faults).alias(FAULT))

    def complete(self, staged: DataFrame) -> DataFrame:
        """Whole states of the staged rows of a whole log; a gap fails the query."""
        deleted, lacks = F.col("_deleted"), self.lacks()
        place = {"topic": F.lit(self.table.topic), "partition": F.lit(-1), "offset": F.col("_offset")}
        failure = refuse(self.gap, F.col(self.table.key[0]).cast("string"), place=place).cast("boolean")
        judged = F.when(lacks, failure).otherwise(deleted).alias("_deleted")
        return self.there(staged).select(*self.table.stored, *POSITION, judged)

    def lacks(self) -> Column:
        """Over staged rows of whole histories: whether one lacks what only an earlier record could give it."""
        return F.lit(False)

    def there(self, staged: DataFrame) -> DataFrame:
        """The staged rows that are rows of the state."""
        return staged

    def handed(self, rows: DataFrame, name: str, *, partitioned: bool) -> DataFrame:
        """The rows as a view's function takes them under a ``name``; ``partitioned`` if the view has partitions."""
        return marked(rows, marks_of_key(self.table) if partitioned else {})


def marks_of_key(table: AnyTable) -> dict[str, dict[str, Any]]:
    """Which columns distinguish a table's rows, and which of them holds an event's version."""
    return {column: {ROW_KEY: True} | ({ENTRY: True} if column in table.entries else {}) for column in table.key}


def marked(rows: DataFrame, marks: Mapping[str, Mapping[str, Any]]) -> DataFrame:
    """The rows, with metadata of columns that Spark keeps through selections, filters and joins."""
    if not marks:
        return rows
    return rows.select(*(F.col(c).alias(c, metadata=marks[c]) if c in marks else F.col(c) for c in rows.columns))


def valid_at_some_time(versions: DataFrame) -> DataFrame:
    """Versions with their times as timestamps. Of two that begin at one time, the first was never valid."""
    lasting = F.col(FROM).isNull() | F.col(TO).isNull() | (F.col(FROM) < F.col(TO))
    return versions.where(lasting).withColumns({time: F.timestamp_micros(time) for time in (FROM, TO)})
