"""An event store on SQLite as the log of projections: no Kafka, no Connect, the same records.

Spark reads it through a Python data source. It is a batch source: a live batch is a bounded read between two sets of
offsets, on Kafka as here (docs/decisions/0004), so that a streaming reader would have no caller.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eventstore.backends.sql.sqlite_log import PARTITION, Record, SqliteLog
from eventstore.schema_registry import RegisteredSchema
from projections.declaring.view_topics import ViewTopics
from projections.errors import InvalidDefinition
from projections.logs.offsets import OffsetRange, Offsets
from projections.logs.port import (
    HEADERS,
    DeadLetters,
    SourceBoundaries,
    Uncompacted,
    arrow_record_schema,
    record_schema,
)

# Planning a Python data source starts Python twice, a second or more; so many records are read in a tenth of that.
DRIVER_OFFSETS = 20_000
OFFSETS = 100_000  # a task: about a second of reading, many times what it costs to start one
_SCHEMA = arrow_record_schema(headed=True)


@dataclass(frozen=True)
class StoreLog(Uncompacted):
    """The topics of one SQLite file."""

    path: str

    def open(self) -> OpenStoreLog:
        """The file opened; a look at the ends is one query."""
        return OpenStoreLog(self.path)

    def schemas(self, avro_changelogs: Collection[str] = ()) -> Mapping[int, RegisteredSchema]:
        """The schemas of the store; triggers write no Avro."""
        with SqliteLog(self.path) as log:
            return log.schemas()

    def transactions(self, prefix: str, topics: Sequence[str]) -> SourceBoundaries:
        """InvalidDefinition: the changes in this file carry no marks of their transactions."""
        raise InvalidDefinition(
            f"transactions of {prefix!r} cannot be applied whole in a store of its own file",
            remedy="leave ProjectionGroup(transactions=…) away, or capture the tables by Kafka Connect",
            place=self.path,
        )

    def dead_letters(self, topics: Sequence[str], *, group: str) -> AbstractContextManager[DeadLetters]:
        """InvalidDefinition: there is no topic to send them to, and the record stays in this file anyway."""
        raise InvalidDefinition(
            f"group {group!r} sends bad records to dead-letter topics, and a store of its own file has none",
            remedy="use ProjectionGroup(bad_records='skip'): the record stays where it is, its place is noted",
            place=self.path,
        )

    def view_topics(self) -> ViewTopics:
        """InvalidDefinition: there is no topic to publish rows to, and readers of the file can read the view."""
        raise InvalidDefinition(
            "views with a topic are published to Kafka, and this log is a store of its own file",
            remedy="leave topic=… away: the view can be read in the file, or keep the views with a broker",
            place=self.path,
        )

    def scan(self, spark: SparkSession, offsets: OffsetRange, *, headed: bool = False) -> DataFrame:
        """The records of a range, read by Python workers in parallel; a small one by the driver, which is quicker."""
        if offsets.records <= DRIVER_OFFSETS:
            with self.open() as log:
                return spark.createDataFrame(log.fetch(offsets, headed=headed))
        spark.dataSource.register(StoreRecords)
        reader = spark.read.format(StoreRecords.name()).option("file", self.path).option("step", OFFSETS)
        records = reader.option("ranges", json.dumps(_ranges(offsets))).load()
        return records if headed else records.drop(*HEADERS)


class OpenStoreLog(SqliteLog):
    """The open file, and small ranges of it: starting a task would take longer."""

    def fetch(self, offsets: OffsetRange, *, headed: bool = False) -> pa.Table:
        """The records of a range."""
        batches = [b for topic, first, last in _ranges(offsets) for b in _batches(self, topic, first, last)]
        records = pa.Table.from_batches(batches, _SCHEMA)
        return records if headed else records.drop_columns(list(HEADERS))

    def deletions_complete_from(self, topics: Sequence[str]) -> Offsets:
        """None: nothing is compacted here."""
        return {}

    def oldest(self, offsets: OffsetRange) -> datetime | None:
        """By the times of events; changes of captured rows have none."""
        firsts = (self.first(*part) for part in _ranges(offsets))
        times = [record[3] for record in firsts if record is not None]
        return min((datetime.fromisoformat(time) for time in times if time is not None), default=None)


def _ranges(offsets: OffsetRange) -> list[tuple[str, int, int]]:
    nonempty = offsets.not_empty()
    return [(topic, nonempty.start[topic][PARTITION], ends[PARTITION]) for topic, ends in nonempty.end.items()]


def _batches(log: SqliteLog, topic: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
    return (_batch(topic, page) for page in log.records(topic, first, last))


def _batch(topic: str, page: Sequence[Record]) -> pa.RecordBatch:
    offsets, keys, values, *headers = zip(*page, strict=True)
    topics, partitions = (pa.repeat(pa.scalar(v, t), len(page)) for v, t in ((topic, "string"), (PARTITION, "int32")))
    columns = [
        topics, partitions, pa.array(offsets, pa.int64()), pa.array(keys, pa.string()).cast(pa.binary()),
        pa.array(values, pa.binary()), *(pa.array(header, pa.string()) for header in headers),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


class StoreRecords(DataSource):
    """Records of an event store in SQLite; ``ranges`` is JSON of (topic, first, last), ``step`` a task's share."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "factfold_store"

    def schema(self) -> str:
        """A raw record."""
        return record_schema(headed=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the ranges."""
        ranges = json.loads(self.options["ranges"])
        return _StoreReader(self.options["file"], ranges, step=int(self.options["step"]))


@dataclass
class _Part(InputPartition):
    topic: str
    first: int
    last: int


class _StoreReader(DataSourceReader):
    def __init__(self, path: str, ranges: Sequence[tuple[str, int, int]], *, step: int) -> None:
        self._path = path
        self._ranges = ranges
        self._step = step

    def partitions(self) -> Sequence[InputPartition]:
        return [
            _Part(topic, begin, min(begin + self._step, last))
            for topic, first, last in self._ranges
            for begin in range(first, last, self._step)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Part):
            raise TypeError(f"{partition!r} is no part of a store")
        with SqliteLog(self._path) as log:
            yield from _batches(log, partition.topic, partition.first, partition.last)
