"""An archive in Delta Lake, as projections read it."""

from __future__ import annotations

import functools
import operator
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eventstore.identifiers import check_topic
from projections.errors import ProjectionError
from projections.logs.layers import ArchivableLog, ArchivedLog, Extent
from projections.logs.offsets import OffsetRange
from projections.logs.port import HEADERS, header_text
from projections.spark.archive.table import TopicTable
from projections.spark.delta_log import LOCAL, folders_in, spelled
from projections.spark.session import has_delta_lake


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
        if not has_delta_lake(spark):
            raise ProjectionError(
                "this Spark session has no Delta Lake",
                remedy="give its jars when the session is opened: jars=[*spark_jars(), *delta_jars()]",
                place=str(path),
                code="archive-unusable",
            )
        folder = ArchiveFolder.of(path)
        folder.make()
        own = spark.newSession()
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
