"""One Delta table of a generation: read at a version, and moved on by a writer who is alone with it.

Delta commits one table at a time. Which versions belong together is said by the ledger, so a table may be ahead of what
it says: a batch that was killed left that. Whoever writes next goes back to the version that counts before he goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from projections.errors import RunSuperseded, SparkFailed
from projections.spark.failures import told_plainly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A changed row is marked in its file, which is not written again for it.
_PROPERTIES: Final = {"delta.enableDeletionVectors": "true"}
# More files than that, beside those that have a good size, are put together.
MOST_SMALL_FILES: Final = 64
_GOOD_BYTES: Final = 64 << 20
_RACE: Final = "DELTA_CONCURRENT"


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
        with told_plainly(self.path):
            return reader.load(self.path)

    def version(self) -> int:
        """The newest version; -1 where there is no table."""
        with told_plainly(self.path):
            return int(self._snapshot().version())

    def replace(self, rows: DataFrame) -> int:
        """Make these rows all of the table, whatever a killed process left there; returns their version."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        for name, value in _PROPERTIES.items():
            writer = writer.option(name, value)
        with self._told():
            writer.save(self.path)
        return self.version()

    def count(self, version: int) -> int:
        """The rows of a version, out of the table's statistics."""
        with told_plainly(self.path):
            return self.rows(version).count()

    def merge(self, changes: DataFrame, key: Sequence[str], *, at: int, nullable: bool = False) -> int:
        """Put changed rows in the place of those of their keys, in the version ``at``; returns the new version.

        Where ``changes`` has a column ``_retracted``, rows that are marked in it go. RunSuperseded where anybody else
        has committed meanwhile: then the new version is not known to hold this batch alone.
        """
        known = self.version()
        if known != at:
            known = self._alone(lambda: self._delta().restoreToVersion(at), after=known)
        known = self._alone(lambda: self._merge(changes, key, nullable=nullable), after=known)
        return self._compacted(known)

    def _merge(self, changes: DataFrame, key: Sequence[str], *, nullable: bool) -> None:
        same = " AND ".join(f"t.`{c}` {'<=>' if nullable else '='} s.`{c}`" for c in key)
        source: Any = changes.alias("s")._jdf  # noqa: SLF001 - the JVM's side of it
        merge = self._delta().alias("t").merge(source, same)
        if "_retracted" in changes.columns:
            merge = merge.whenMatched("s._retracted").delete()
            merge.whenMatched().updateAll().whenNotMatched("NOT s._retracted").insertAll().execute()
        else:
            merge.whenMatched().updateAll().whenNotMatched().insertAll().execute()

    def _compacted(self, version: int) -> int:
        with told_plainly(self.path):
            snapshot = self._snapshot()
            files, size = int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())
        if files <= MOST_SMALL_FILES + 2 * (size // _GOOD_BYTES):
            return version
        return self._alone(lambda: self._delta().optimize().executeCompaction(), after=version)

    def _alone(self, commit: Callable[[], object], *, after: int) -> int:
        """Commit, and require that nobody else has: the version is one more, or the same where nothing had to be done.

        Were the newest version simply taken for ours, another runner's rows could be in it.
        """
        with self._told():
            commit()
        found = self.version()
        if found not in (after, after + 1):
            raise self._superseded()
        return found

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            with told_plainly(self.path):
                yield
        except SparkFailed as error:
            if _RACE in str(error.__cause__):
                raise self._superseded() from error
            raise

    def _superseded(self) -> RunSuperseded:
        return RunSuperseded(
            "another runner writes the same table; nothing of this batch counts",
            remedy="stop one of the two runners",
            place=self.path,
        )

    def _snapshot(self) -> Any:
        java: Any = self.spark._jvm  # noqa: SLF001 - Delta's Python package asks for a jar that is not there
        log = java.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.path)  # noqa: SLF001
        nothing = java.scala.Option.empty()
        return log.update(False, nothing, nothing)

    def _delta(self) -> Any:
        java: Any = self.spark._jvm  # noqa: SLF001
        return java.io.delta.tables.DeltaTable.forPath(self.spark._jsparkSession, self.path)  # noqa: SLF001
