"""One topic's table: rows appended, and how far the topic is archived, in one commit of Delta's log.

Delta keeps, for each application that writes a table, the last version it wrote (the ``txn`` action of its protocol).
The next offset of a partition is such a version, under a name of the partition's own: it is committed with the rows,
read back with the table's state and never cleaned away, and a writer that has read one fails its commit where another
one changed it. Spark's public writer sets one of them a commit; a topic has many partitions. The transaction is
therefore Delta's own (docs/decisions/0037).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from projections.errors import ProjectionError, SparkFailed
from projections.logs.layers import Extent
from projections.logs.port import record_schema
from projections.spark.delta_log import DeltaLog
from projections.spark.failures import described
from projections.spark.scala import items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
            builder = java.io.delta.tables.DeltaTable.createIfNotExists(self._log.session).location(self.path)
            builder = builder.addColumns(java.org.apache.spark.sql.types.StructType.fromDDL(SCHEMA))
            for name, value in {**_PROPERTIES, _TOPIC_ID: topic_id}.items():
                builder = builder.property(name, value)
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

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[None]:
        """Raise Delta's errors as typed errors; a lost race as ProjectionError."""
        try:
            with described(self.path):
                yield
        except SparkFailed as error:
            if "ConcurrentTransaction" in str(error.__cause__):
                raise self._moved("it committed first") from error
            raise


def _transactions(snapshot: Any) -> Any:
    """The last version of each application: from the checksum of the last commit, else in a job over the log."""
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    return known.get() if known.isDefined() else snapshot.setTransactions()


def _partitions(versions: Mapping[str, int], prefix: str) -> dict[int, int]:
    offsets = {name.removeprefix(prefix): version for name, version in versions.items() if name.startswith(prefix)}
    return {int(partition): offsets[partition] for partition in sorted(offsets, key=int)}
