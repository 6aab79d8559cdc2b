"""Delta tables of views: the records of the outbox, merged by the view's key, each record once.

The number of the last record in a table is Delta's transaction version of the group, in the commit that has the rows.
A write that is repeated after a kill leaves out what the table has.

Delta's Python package has no transactions, and needs a version of its jar that is not installed. Its classes are called
in the JVM instead, as its own streaming sink calls them (docs/decisions/0037).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from projections.declaring.view_topics import RESET, LakeChange
from projections.errors import ProjectionError, SparkFailed
from projections.spark.exchange import few_rows
from projections.spark.failures import described
from projections.spark.nesting import opened_up
from projections.spark.reading.view_records import of_json_text
from projections.spark.session import has_delta_lake

_RACE: Final = "DELTA_CONCURRENT"
_PROPERTIES: Final = {
    "delta.enableChangeDataFeed": "true",
    # A changed row is marked in its file, which is not written again for it.
    "delta.enableDeletionVectors": "true",
    "delta.autoOptimize.autoCompact": "true",
    # A checkpoint takes a second of a batch's time. Up to this many commits, it saves readers less than that.
    "delta.checkpointInterval": "100",
}
_TXN: Final = "spark.databricks.delta.write.txn"  # the settings that Delta reads an application's version from
_DELETED: Final = "_deleted"


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

    def builder(self, properties: Mapping[str, str]) -> Any:
        """What makes the table, with these properties, unless it is there."""
        builder = self.java.io.delta.tables.DeltaTable.createIfNotExists(self.session).location(self.path)
        for name, value in properties.items():
            builder = builder.property(name, value)
        return builder

    @contextlib.contextmanager
    def typed_errors(self, lost: Callable[[], Exception], *, race: str = _RACE) -> Iterator[None]:
        """Raise Delta's errors as typed errors; a lost race, which has that name, as the error that ``lost`` makes."""
        try:
            with described(self.path):
                yield
        except SparkFailed as error:
            if race in str(error.__cause__):
                raise lost() from error
            raise

    def nothing(self) -> Any:
        """Scala's None."""
        return self.java.scala.Option.empty()

    def _log(self) -> Any:
        return self.java.org.apache.spark.sql.delta.DeltaLog.forTable(self.session, self.path)


LOCAL = "file:"


def delta_session(spark: SparkSession, cause: str, *, code: str, place: str | None = None) -> SparkSession:
    """A session of its own for Delta tables; ProjectionError, with a cause, where Spark has no Delta Lake."""
    if not has_delta_lake(spark):
        raise ProjectionError(
            cause,
            remedy="give its jars when the session is opened: jars=[*spark_jars(), *delta_jars()]",
            place=place,
            code=code,
        )
    return spark.newSession()


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


@dataclass(frozen=True)
class DeltaTables:
    """A `projections.declaring.view_topics.LakeTables`; ``spark`` is a session of its own. Made by ``of``."""

    spark: SparkSession

    @staticmethod
    def of(spark: SparkSession) -> DeltaTables:
        """The tables that a session reaches; ProjectionError for one without Delta Lake."""
        cause = "a view fills a Delta table, and this Spark session has no Delta Lake"
        return DeltaTables(delta_session(spark, cause, code="lake-unusable"))

    def ensure(self, paths: Sequence[str]) -> list[str]:
        """Make those that are missing, and return their paths."""
        missing = [path for path in paths if self._log(path).version() < 0]
        for path in missing:
            with described(path):
                self._log(path).builder(_PROPERTIES).execute()
        return missing

    def ids(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Those in the tables' metadata."""
        return {path: str(self._log(path).snapshot().metadata().id()) for path in paths}

    def holding(self, paths: Sequence[str]) -> list[str]:
        """Those with a commit behind their first, which only makes a table."""
        return [path for path in paths if self._log(path).version() > 0]

    def write(self, path: str, group: str, change: LakeChange) -> None:
        """One commit with all rows that the table lacks, or none where it lacks none."""
        log, application = self._log(path), f"factfold.{group}"
        with log.typed_errors(lambda: _superseded(log)):
            written = int(log.begin().txnVersion(application))
            lacking = [row for row in change.rows if row[0] > written]
            if lacking:
                with self._transaction(application, lacking[-1][0]):
                    self._commit(log, change, lacking)

    def _commit(self, log: DeltaLog, change: LakeChange, lacking: Sequence[tuple[int, str, str | None]]) -> None:
        begin = next((number for number, (_, key, _) in enumerate(lacking) if key == RESET), None)
        rows = self._rows(change, lacking if begin is None else lacking[begin + 1 :])
        if begin is None:
            _merge(log, rows, change.key)
        else:
            whole = rows.where(f"NOT {_DELETED}").drop(_DELETED).write.format("delta").mode("overwrite")
            whole.option("overwriteSchema", "true").save(log.path)

    def _rows(self, change: LakeChange, records: Sequence[tuple[int, str, str | None]]) -> DataFrame:
        """The view's columns, those of its key alone in a deleted row, and a column that says which is deleted."""
        texts = pa.table({
            "key": pa.array([key for _, key, _ in records], pa.string()),
            "value": pa.array([value for _, _, value in records], pa.string()),
        })  # fmt: skip
        row = F.from_json(F.coalesce("value", "key"), "map<string, string>")
        parsed = few_rows(self.spark, texts).select(row.alias("row"), F.col("value").isNull().alias(_DELETED))
        columns = (of_json_text(F.col("row")[name], kind).alias(name) for name, kind in change.columns.items())
        return opened_up(parsed.select(*columns, _DELETED), change.columns)

    @contextlib.contextmanager
    def _transaction(self, application: str, version: int) -> Iterator[None]:
        """Let the commit of the block note a version; Delta leaves out one that the table has."""
        self.spark.conf.set(f"{_TXN}AppId", application)
        self.spark.conf.set(f"{_TXN}Version", str(version))
        try:
            yield
        finally:
            self.spark.conf.unset(f"{_TXN}AppId")
            self.spark.conf.unset(f"{_TXN}Version")

    def _log(self, path: str) -> DeltaLog:
        return DeltaLog(self.spark, spelled(path))


def _merge(log: DeltaLog, rows: DataFrame, key: Sequence[str]) -> None:
    same = " AND ".join(f"t.`{column.replace('`', '``')}` <=> s.`{column.replace('`', '``')}`" for column in key)
    source: Any = rows.alias("s")._jdf  # noqa: SLF001 - the JVM's side of it
    merge = log.table().alias("t").merge(source, same).whenMatched(f"s.{_DELETED}").delete()
    merge.whenMatched().updateAll().whenNotMatched(f"NOT s.{_DELETED}").insertAll().execute()


def _superseded(log: DeltaLog) -> ProjectionError:
    return ProjectionError(
        "another process writes the same Delta table, and nothing of this write counts",
        remedy="stop one of the two runners, and let nothing else write the table",
        place=log.path,
        code="run-superseded",
    )
