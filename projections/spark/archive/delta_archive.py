"""An archive in Delta Lake, as projections read it: one table a topic.

Rows are appended, and how far the topic is archived, in one commit of Delta's log. Delta keeps, for each application
that writes a table, the last version it wrote (the ``txn`` action of its protocol). The next offset of a partition is
such a version, under a name of the partition's own: it is committed with the rows, read back with the table's state and
never cleaned away, and a writer that has read one fails its commit where another one changed it. Spark's public writer
sets one of them a commit; a topic has many partitions. The transaction is therefore Delta's own (docs/decisions/0037).
"""

from __future__ import annotations

import functools
import json
import operator
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eventstore.identifiers import check_topic
from projections.errors import ProjectionError
from projections.logs.layers import ArchivableLog, ArchivedLog, Extent
from projections.logs.offsets import OffsetRange
from projections.logs.port import HEADERS, header_text, record_schema
from projections.spark.delta_tables import LOCAL, DeltaLog, delta_session, folders_in, spelled
from projections.spark.scala import items

SCHEMA: Final = (
    f"{record_schema(headed=False)}, headers array<struct<key: string, value: binary>>, ce_time string, "
    "timestamp timestamp"
)
_TOPIC_ID: Final = "factfold.topic.id"
# Only these two are read by ranges: other columns need no smallest and largest values in every file.
_PROPERTIES: Final = {"delta.appendOnly": "true", "delta.dataSkippingStatsColumns": "offset,timestamp"}
_BEGIN, _END = "factfold.begin.", "factfold.end."  # and the partition
_NOT_THERE: Final = -1  # Delta's value for a version that was never written


@dataclass(frozen=True)
class TopicTable:
    """The Delta table of one topic at a Hadoop path; ``spark`` is a session with Delta Lake."""

    spark: SparkSession
    path: str
    topic: str

    def make(self, topic_id: str) -> None:
        """Make the table where there is none."""
        java = self._log.java
        with self._typed_errors():
            builder = self._log.builder({**_PROPERTIES, _TOPIC_ID: topic_id})
            builder = builder.addColumns(java.org.apache.spark.sql.types.StructType.fromDDL(SCHEMA))
            builder.partitionedBy(self._texts("partition")).execute()

    def extent(self) -> Extent | None:
        """How far the topic is archived, as of now; None where nothing was made."""
        with self._typed_errors():
            snapshot = self._log.snapshot()
            if snapshot.version() < 0:
                return None
            versions = {one.appId(): one.version() for one in items(_transactions(snapshot))}
            topic_id = snapshot.metadata().configuration().get(_TOPIC_ID)
            if topic_id.isEmpty():
                raise ProjectionError(
                    "the table was not made by an archiver",
                    remedy="give the archive a folder of its own",
                    place=self.path,
                    code="archive-unusable",
                )
            return Extent(topic_id.get(), _partitions(versions, _BEGIN), _partitions(versions, _END))

    def made_at(self) -> float:
        """When the table was made, in seconds since 1970; now, where that is not said."""
        with self._typed_errors():
            created = self._log.snapshot().metadata().createdTime()
            return created.get() / 1000 if created.isDefined() else time.time()

    def append(
        self, rows: DataFrame, start: Mapping[int, int], end: Mapping[int, int], *, before_commit: Callable[[], None]
    ) -> None:
        """Add the rows of a range of offsets and move the topic's progress from its start to its end, in one commit.

        ``before_commit`` is called once the rows are written and not yet visible. ProjectionError where progress is not
        at ``start``, when the transaction begins or when it commits.
        """
        with self._typed_errors():
            transaction = self._log.begin()
            self._require_at(transaction, start)
            files = transaction.writeFiles(rows._jdf)  # noqa: SLF001 - the JVM's side of it
            before_commit()
            self._move(transaction, start, end)
            transaction.commit(files, self._operation(transaction, end))

    def rows(self, spark: SparkSession) -> DataFrame:
        """Every archived record; columns of ``SCHEMA``."""
        return spark.read.format("delta").load(self.path)

    def compact(self) -> Mapping[str, int]:
        """Put small files together; returns how many were removed and added. Readers see the same rows throughout."""
        with self._typed_errors():
            metrics = self._log.table().optimize().executeCompaction().collectAsList().get(0).getAs("metrics")
        return {
            "files_removed": int(metrics.getAs("numFilesRemoved")),
            "files_added": int(metrics.getAs("numFilesAdded")),
        }

    def clean(self) -> None:
        """Delete files that no version of the last seven days holds: compacted ones, and those of killed archivers."""
        with self._typed_errors():
            self._log.table().vacuum()

    def files(self) -> tuple[int, int]:
        """How many files the table has, and their bytes."""
        with self._typed_errors():
            snapshot = self._log.snapshot()
            return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    def _require_at(self, transaction: Any, start: Mapping[int, int]) -> None:
        for partition, offset in start.items():
            archived = transaction.txnVersion(f"{_END}{partition}")
            if archived not in (offset, _NOT_THERE):
                raise self._moved(f"partition {partition} is archived up to {archived}, not {offset}")

    def _move(self, transaction: Any, start: Mapping[int, int], end: Mapping[int, int]) -> None:
        nothing = self._log.nothing()
        for partition, offset in end.items():
            if transaction.txnVersion(f"{_BEGIN}{partition}") == _NOT_THERE:
                transaction.updateSetTransaction(f"{_BEGIN}{partition}", start[partition], nothing)
            transaction.updateSetTransaction(f"{_END}{partition}", offset, nothing)

    def _operation(self, transaction: Any, end: Mapping[int, int]) -> Any:
        """What the table's history says of the commit; the offsets in it are for people."""
        java = self._log.java
        append = java.org.apache.spark.sql.streaming.OutputMode.Append()
        user_metadata = java.scala.Option.apply(json.dumps({"topic": self.topic, "end": end}))
        update = getattr(java.org.apache.spark.sql.delta, "DeltaOperations$StreamingUpdate")
        return update(append, f"factfold.archive.{self.topic}", transaction.readVersion() + 1, user_metadata)

    @property
    def _log(self) -> DeltaLog:
        return DeltaLog(self.spark, self.path)

    def _texts(self, *texts: str) -> Any:
        gateway: Any = self.spark.sparkContext._gateway  # noqa: SLF001
        array = gateway.new_array(gateway.jvm.java.lang.String, len(texts))
        for number, text in enumerate(texts):
            array[number] = text
        return array

    def _moved(self, why: str) -> ProjectionError:
        return ProjectionError(
            f"another archiver is at work: {why}",
            remedy="let one process archive a topic",
            place=self.path,
            code="archive-moved",
        )

    def _typed_errors(self) -> AbstractContextManager[None]:
        """Raise Delta's errors as typed errors; a lost race as ProjectionError."""
        return self._log.typed_errors(lambda: self._moved("it committed first"), race="ConcurrentTransaction")


def _transactions(snapshot: Any) -> Any:
    """The last version of each application: from the checksum of the last commit, else in a job over the log."""
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    return known.get() if known.isDefined() else snapshot.setTransactions()


def _partitions(versions: Mapping[str, int], prefix: str) -> dict[int, int]:
    offsets = {name.removeprefix(prefix): version for name, version in versions.items() if name.startswith(prefix)}
    return {int(partition): offsets[partition] for partition in sorted(offsets, key=int)}


@dataclass(frozen=True)
class ArchiveFolder:
    """The folder of an archive, as Hadoop spells it; made by ``of``."""

    uri: str

    @staticmethod
    def of(path: str | Path) -> ArchiveFolder:
        """The folder at a path of this machine, or at a URI of any file system that Spark is configured for."""
        return ArchiveFolder(spelled(path))

    def of_topic(self, topic: str) -> str:
        """The folder of one topic; InvalidIdentifier for what is no name of one."""
        return f"{self.uri}/{check_topic(topic)}"

    def make(self) -> None:
        """Make a local folder, or check that only its owner can enter it; ProjectionError."""
        if not self.uri.startswith(LOCAL):
            return
        folder = Path(self.uri.removeprefix(LOCAL))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        except OSError as error:
            raise _unusable(f"cannot be made: {error.strerror}", folder) from error
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise _unusable("can be entered by others than its owner", folder)

    def topics(self, spark: SparkSession) -> list[str]:
        """The names of its folders; none where it was not made."""
        return folders_in(spark, self.uri)


def _unusable(why: str, folder: Path) -> ProjectionError:
    return ProjectionError(
        f"the archive's folder {why}",
        remedy="give a folder that this user can write. One that is there needs mode 0700 (chmod 700)",
        place=str(folder),
        code="archive-unusable",
    )


# Compaction combines files below the first size into files of at most the second: some seconds of reading each, and few
# enough to plan. Files above the first size are not written again.
SMALL_BYTES: Final = 64 << 20
LARGE_BYTES: Final = 256 << 20
_SETTINGS: Final = {
    "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
    "spark.databricks.delta.optimize.maxFileSize": str(LARGE_BYTES),
    # A folder a partition is looked through in so many tasks; Spark's 10,000 take 40 s to clean an empty table.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
_RAW: Final = ("partition", "offset", "key", "value")


@dataclass(frozen=True)
class DeltaArchive:
    """Topics in one folder, a table each; ``spark`` is a session of the archive's own. Made by ``open``."""

    spark: SparkSession
    folder: ArchiveFolder

    @staticmethod
    def open(spark: SparkSession, path: str | Path) -> DeltaArchive:
        """The archive at a local path or a URI that Hadoop understands; a local folder is made, for its owner only.

        ProjectionError where that cannot be, or where the session has no Delta Lake.
        """
        own = delta_session(spark, "this Spark session has no Delta Lake", place=str(path), code="archive-unusable")
        folder = ArchiveFolder.of(path)
        folder.make()
        for name, value in _SETTINGS.items():
            own.conf.set(name, value)
        return DeltaArchive(own, folder)

    def table(self, topic: str) -> TopicTable:
        """The table of a topic, whether it was made or not; InvalidIdentifier."""
        return TopicTable(self.spark, self.folder.of_topic(topic), topic)

    def topics(self) -> list[str]:
        """The topics it holds something of."""
        return [topic for topic in self.folder.topics(self.spark) if self.table(topic).extent() is not None]

    def extents(self, topics: Collection[str]) -> Mapping[str, Extent]:
        """What it holds of each of the topics, as of now."""
        by_topic = {topic: self.table(topic).extent() for topic in topics}
        return {topic: extent for topic, extent in by_topic.items() if extent is not None}

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """The records of a range it holds, which is not empty; files outside of it are not opened."""
        nonempty = offsets.not_empty()
        frames = [self._scan_topic(spark, topic, nonempty, headed=headed) for topic in nonempty.end]
        return functools.reduce(lambda one, other: one.unionByName(other), frames)

    def _scan_topic(self, spark: SparkSession, topic: str, offsets: OffsetRange, *, headed: bool) -> DataFrame:
        rows = self.table(topic).rows(spark).where(between(offsets.start[topic], offsets.end[topic]))
        others = [F.expr(header_text(name)) for name in HEADERS if name != "ce_time"]  # which has a column of its own
        headers = [F.col("ce_time"), *others] if headed else []
        return rows.select(F.lit(topic).alias("topic"), *_RAW, *headers)


def archived_log(spark: SparkSession, log: ArchivableLog, path: str | Path) -> ArchivedLog:
    """A log with the archive at this path in front of it; ProjectionError."""
    archive = DeltaArchive.open(spark, path)
    return ArchivedLog(log, archive, archive.spark)


def between(start: Mapping[int, int], end: Mapping[int, int]) -> Column:
    """Whether a row lies in a range of offsets, in a form by which Delta skips files without opening them.

    Delta skips files by separate conditions on the partition and on the smallest and largest offset. The condition on
    each partition's own range is last.
    """
    partition, offset = F.col("partition"), F.col("offset")
    parts = [(partition == p) & (offset >= start[p]) & (offset < last) for p, last in end.items()]
    outer = (offset >= min(start[p] for p in end)) & (offset < max(end.values()))
    return partition.isin(list(end)) & outer & functools.reduce(operator.or_, parts)
