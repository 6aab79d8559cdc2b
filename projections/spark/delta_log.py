"""The log of one Delta table: its versions, and commits of files that the writer chooses.

Delta's Python package has no transactions, and needs a version of its jar that is not installed. Its classes are
called in the JVM instead, as its own streaming sink calls them (docs/decisions/0037).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from projections.errors import SparkFailed
from projections.spark.failures import described
from projections.spark.scala import items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RACE: Final = "DELTA_CONCURRENT"


@dataclass(frozen=True)
class DeltaLog:
    """The log of the table at a Hadoop path."""

    spark: SparkSession
    path: str

    @property
    def java(self) -> Any:
        """The JVM."""
        return self.spark._jvm  # noqa: SLF001

    @property
    def session(self) -> Any:
        """The JVM's side of the session."""
        return self.spark._jsparkSession  # noqa: SLF001

    def snapshot(self) -> Any:
        """The newest state of the table; its version is -1 where there is none."""
        nothing = self.nothing()
        return self._log().update(False, nothing, nothing)

    def version(self) -> int:
        """The newest version."""
        with described(self.path):
            return int(self.snapshot().version())

    def begin(self) -> Any:
        """A transaction on the newest version, which fails where another one commits to what it has read."""
        return self._log().startTransaction()

    def files(self, version: int) -> list[Any]:
        """The files of a version: some for each 64 MB, as every query of it plans them in the driver too."""
        return items(_files_of(self._at(version)))

    def columns(self, version: int) -> list[str]:
        """The names of a version's columns."""
        return list(self._at(version).schema().fieldNames())

    def size(self, version: int) -> int | None:
        """The bytes of a version's files, where its writer has noted them."""
        noted = self._at(version).checksumOpt()
        return int(noted.get().tableSizeBytes()) if noted.isDefined() else None

    def rows(self, version: int) -> DataFrame:
        """The rows of a version, whose files are listed now: a query of it need not ask the log which they are."""
        from pyspark.sql.classic.dataframe import DataFrame

        snapshot = self._at(version)
        files = _files_of(snapshot)
        self._activate()
        frame = self._log().createDataFrame(snapshot, files, False, self.nothing())
        return DataFrame(frame, self.spark)

    def files_before(self, transaction: Any) -> list[Any]:
        """The files of the version that a transaction began at; it does not fail where another one changes them."""
        return items(_files_of(transaction.snapshot()))

    def written(self, transaction: Any, rows: DataFrame) -> list[Any]:
        """New files with these rows, of a table's columns: a commit of the transaction may add them."""
        self._activate()
        return items(transaction.writeFiles(rows._jdf))  # noqa: SLF001 - the JVM's side of it

    def commit(self, transaction: Any, operation: Any, *, removed: Iterable[Any], added: Iterable[Any]) -> int:
        """Take files out of the table and others in; returns the version that has them.

        ``operation`` is its name in the history. After a "manual update", the general operation, Delta computes the
        whole state for its note. After other operations it derives the note from the previous one.
        """
        actions = self.java.scala.collection.mutable.ListBuffer()
        for action in (*(file.remove() for file in removed), *added):
            actions.append(action)
        return int(transaction.commit(actions.toSeq(), operation))

    def restoring(self, version: int) -> Any:
        """The operation that makes a table what it was."""
        restore = getattr(self.java.org.apache.spark.sql.delta, "DeltaOperations$Restore")
        return restore(self.java.scala.Option.apply(version), self.nothing())

    def overwriting(self) -> Any:
        """The operation that makes other rows all of a table."""
        write = getattr(self.java.org.apache.spark.sql.delta, "DeltaOperations$Write")
        return write(self.java.org.apache.spark.sql.SaveMode.Overwrite, *[self.nothing()] * 8)

    def table(self) -> Any:
        """The table as Delta's Java API has it: merges, compaction."""
        return self.java.io.delta.tables.DeltaTable.forPath(self.session, self.path)

    @contextlib.contextmanager
    def typed_errors(self, lost: Callable[[], Exception]) -> Iterator[None]:
        """Raise Delta's errors as typed errors; a lost race as the error that ``lost`` makes."""
        try:
            with described(self.path):
                yield
        except SparkFailed as error:
            if _RACE in str(error.__cause__):
                raise lost() from error
            raise

    def nothing(self) -> Any:
        """Scala's None."""
        return self.java.scala.Option.empty()

    def _activate(self) -> None:
        """Delta makes frames, and writes them, in the session that is active in a thread."""
        self.java.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.session)

    def _at(self, version: int) -> Any:
        nothing = self.nothing()
        return self._log().getSnapshotAt(version, nothing, nothing, False)

    def _log(self) -> Any:
        return self.java.org.apache.spark.sql.delta.DeltaLog.forTable(self.session, self.path)


def _files_of(snapshot: Any) -> Any:
    """A version's files as its writer noted them; without a note, Spark jobs compute them from the log.

    Delta notes up to fifty next to the commit ("Version Checksum File" in its protocol), and compares them with the log
    at each checkpoint.
    """
    checksum = snapshot.checksumOpt()
    noted = checksum.get().allFiles() if checksum.isDefined() else checksum
    return noted.get() if noted.isDefined() else snapshot.getAllFiles(False)  # without their statistics
