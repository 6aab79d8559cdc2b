"""The log of one Delta table: its versions, and transactions.

Delta's Python package has no transactions, and needs a version of its jar that is not installed. Its classes are
called in the JVM instead, as its own streaming sink calls them (docs/decisions/0037).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from projections.errors import SparkFailed
from projections.spark.failures import described

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

    def _log(self) -> Any:
        return self.java.org.apache.spark.sql.delta.DeltaLog.forTable(self.session, self.path)


LOCAL = "file:"


def spelled(path: str | Path) -> str:
    """A path of this machine, or a URI of any file system that Spark is configured for, as Hadoop spells it."""
    text = str(path)
    if urlsplit(text).scheme not in ("", "file"):
        return text.rstrip("/")
    return f"{LOCAL}{Path(text.removeprefix(LOCAL)).expanduser().absolute()}"


def folders_in(spark: SparkSession, uri: str) -> list[str]:
    """The names of the folders in one; none where it was not made."""
    with described(uri):
        files, path = _opened(spark, uri)
        entries = files.listStatus(path) if files.exists(path) else []
        return sorted(one.getPath().getName() for one in entries if one.isDirectory())


def _opened(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    java: Any = spark._jvm  # noqa: SLF001 - Hadoop's file systems have no Python face
    path = java.org.apache.hadoop.fs.Path(uri)
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path  # noqa: SLF001
