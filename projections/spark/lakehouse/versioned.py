"""One Delta table of a generation: read at a version, and moved on by its only writer.

Delta commits one table at a time, and the ledger says which versions belong together. A killed batch leaves a table
ahead of the ledger. The next writer first restores the version that the ledger names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from projections.errors import RunSuperseded
from projections.spark.delta_log import DeltaLog
from projections.spark.failures import described
from projections.spark.gathering import is_for_many
from projections.spark.lakehouse.materialized import within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROPERTIES: Final = {
    # A changed row is marked in its file, which is not written again for it.
    "delta.enableDeletionVectors": "true",
    # A checkpoint takes a second of a batch's time. Up to this many commits, it saves readers less than that.
    "delta.checkpointInterval": "100",
    # Least and greatest values for filtering readers; Delta's default of 32 columns took four fifths of a file's time.
    "delta.dataSkippingNumIndexedCols": "8",
}
# To count a table's files Spark reads its log, which takes as long as a merge of few rows.
COMPACTED_EVERY: Final = 32
# A table is compacted if it has more files than this, apart from those of a good size.
MOST_SMALL_FILES: Final = 64
_GOOD_BYTES: Final = 64 << 20
# Up to this size, some thousand rows, one job rewrites a table; a merge takes about ten jobs, and plans each.
_SMALL_BYTES: Final = 128 << 10
# Larger ones too, where much of them changes: each changed row pays for so many bytes, up to where a merge costs less.
_BYTES_A_ROW: Final = 1 << 10
_MOST_BYTES: Final = 6 << 20


def mostly_rewritten(rows: int) -> int:
    """The bytes up to which a table is rewritten for so many changed rows, instead of merged into."""
    return min(_SMALL_BYTES + rows * _BYTES_A_ROW, _MOST_BYTES)


@dataclass(frozen=True)
class VersionedTable:
    """A Delta table at a Hadoop path; ``name`` is its name in its generation."""

    spark: SparkSession
    path: str
    name: str

    def on(self, spark: SparkSession) -> VersionedTable:
        """The same table, written by another session."""
        return replace(self, spark=spark)

    def rows(self, version: int, spark: SparkSession | None = None) -> DataFrame:
        """The rows of a version, whatever was committed since."""
        reader = (spark or self.spark).read.format("delta").option("versionAsOf", version)
        with described(self.path):
            return reader.load(self.path)

    def listed(self, version: int, spark: SparkSession) -> DataFrame:
        """The rows of a version for many queries: which files they are in is looked up once, now."""
        with described(self.path):
            return DeltaLog(spark, self.path).rows(version)

    def columns(self, version: int) -> list[str]:
        """The names of a version's columns, by the log alone."""
        with described(self.path):
            return self._log.columns(version)

    def version(self) -> int:
        """The newest version; -1 where there is no table."""
        return self._log.version()

    def count(self, version: int) -> int:
        """The rows of a version, out of the table's statistics."""
        with described(self.path):
            return self.rows(version).count()

    def replace(self, rows: DataFrame, *, looked_up: str | None = None) -> int:
        """Make these rows all of the table, whatever a killed process left there; returns their version.

        Where one column alone is ``looked_up``, files get the statistics of no other.
        """
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        statistics = {"delta.dataSkippingStatsColumns": looked_up} if looked_up else {}
        for name, value in (_PROPERTIES | statistics).items():
            writer = writer.option(name, value)
        with self._log.typed_errors(self._superseded):
            writer.save(self.path)
        return self.version()

    def merge(self, changes: DataFrame, key: Sequence[str], *, at: int, count: int = 0, nullable: bool = False) -> int:
        """Put changed rows in the place of those of their keys, in the version ``at``; returns the new version.

        If ``changes`` has a column ``_retracted``, rows that are marked in it are deleted. RunSuperseded if another
        writer has committed meanwhile: the new version may then hold more than this batch. ``count`` is the number of
        changed rows, if it is known.
        """
        if self._is_rewritten(at, count):
            return self._overwritten(_merged(self.listed(at, self.spark), changes, key, nullable=nullable))
        return self._moved_on(lambda table: _merge(table, changes, key, nullable=nullable), at=at)

    def _is_rewritten(self, version: int, count: int) -> bool:
        """Whether that is less than to merge into it; the rows of a large batch are too many for one task."""
        if is_for_many(self.spark):
            return False
        with described(self.path):
            size = self._log.size(version)
        return size is not None and size <= mostly_rewritten(count)

    def _overwritten(self, rows: DataFrame) -> int:
        """Make these rows all of the table; what a killed batch left goes with the rest."""
        known = self.version()
        with self._log.typed_errors(self._superseded):
            transaction = self._log.begin()
            removed, added = self._log.files_before(transaction), self._log.written(transaction, rows.coalesce(1))
            self._log.commit(transaction, self._log.overwriting(), removed=removed, added=added)
        return self._alone(after=known)

    def put(self, rows: DataFrame, key: Sequence[str], *, at: int | None) -> int:
        """As ``merge``, into a table that is made with its first rows: ``at`` is None where there are none yet."""
        return self.replace(rows) if at is None else self.merge(rows, key, at=at)

    def delete(self, condition: str, *, at: int) -> int:
        """Take the rows that a condition accepts out of the version ``at``; returns the new one. RunSuperseded."""
        return self._moved_on(lambda table: table.delete(condition), at=at)

    def update(self, condition: str, values: Mapping[str, str], *, at: int) -> int:
        """Set columns, to what is Spark's SQL, in rows of the version ``at``; returns the new one. RunSuperseded."""
        given = self.spark._jvm.java.util.HashMap()  # type: ignore[union-attr]  # noqa: SLF001
        for column, value in values.items():
            given[f"`{column}`"] = value
        return self._moved_on(lambda table: table.updateExpr(condition, given), at=at)

    def _moved_on(self, write: Callable[[Any], object], *, at: int) -> int:
        known = self.version()
        with self._log.typed_errors(self._superseded):
            if known != at:
                known = self._taken_back(known, to=at)
            write(self._log.table())
            known = self._alone(after=known)
            if known % COMPACTED_EVERY == 0 and self._has_many_files():
                self._log.table().optimize().executeCompaction()
                known = self._alone(after=known)
        return known

    def _taken_back(self, known: int, *, to: int) -> int:
        """Make the table what it was, as Delta's RESTORE does by jobs of Spark; returns the new version."""
        transaction = self._log.begin()
        now = {_identity(file): file for file in self._log.files_before(transaction)}
        then = {_identity(file): file for file in self._log.files(to)}
        removed = [file for name, file in now.items() if name not in then]
        added = [file for name, file in then.items() if name not in now]
        version = self._log.commit(transaction, self._log.restoring(to), removed=removed, added=added)
        return self._alone(after=known) if version == known + 1 else self._refuse()

    def _has_many_files(self) -> bool:
        snapshot = self._log.snapshot()
        return int(snapshot.numOfFiles()) > MOST_SMALL_FILES + 2 * (int(snapshot.sizeInBytes()) // _GOOD_BYTES)

    def _alone(self, *, after: int) -> int:
        """The version of a commit that was just made: one more, or the same where nothing had to be done.

        Were the newest version simply taken for ours, another runner's rows could be in it.
        """
        version = self.version()
        return version if version in (after, after + 1) else self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._superseded()

    def _superseded(self) -> RunSuperseded:
        return RunSuperseded(
            "another runner writes the same table, and nothing of this batch counts",
            remedy="stop one of the two runners",
            place=self.path,
        )

    @property
    def _log(self) -> DeltaLog:
        return DeltaLog(self.spark, self.path)


def _merged(stored: DataFrame, changes: DataFrame, key: Sequence[str], *, nullable: bool) -> DataFrame:
    """All rows as a merge would leave them."""
    others = within(stored, key, changes.select(*key), nullable=nullable, how="left_anti")
    if "_retracted" in changes.columns:
        changes = changes.where("NOT _retracted")
    return others.union(changes.select(*stored.columns))


def _merge(table: Any, changes: DataFrame, key: Sequence[str], *, nullable: bool) -> None:
    same = " AND ".join(f"t.`{c}` {'<=>' if nullable else '='} s.`{c}`" for c in key)
    source: Any = changes.alias("s")._jdf  # noqa: SLF001 - the JVM's side of it
    merge = table.alias("t").merge(source, same)
    if "_retracted" in changes.columns:
        merge = merge.whenMatched("s._retracted").delete()
        merge.whenMatched().updateAll().whenNotMatched("NOT s._retracted").insertAll().execute()
    else:
        merge.whenMatched().updateAll().whenNotMatched().insertAll().execute()


def _identity(file: Any) -> tuple[str, str]:
    """A file as one version has it, with the marks of its deleted rows."""
    return str(file.path()), str(file.getDeletionVectorUniqueId())
