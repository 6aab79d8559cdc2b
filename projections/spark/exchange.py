"""DataFrames to and from the table store: by the driver for small sets, by the executors for large ones.

Nothing that grows with the data passes through the driver. 20,000 rows of some 200 bytes are 4 MB, about one Arrow
batch; below that, starting tasks in Python workers costs more than the transfer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from projections.columns import ColumnType
from projections.tablestore import arrow
from projections.tablestore.arrow import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER_ROWS = 20_000


def write(frame: DataFrame, target: Target, *, rows: int, marked: bool = True) -> int:
    """Append a DataFrame to a table and return the rows written; ``rows`` is how many to expect at most.

    With ``marked`` the table has a ``_task`` column: a task that is run again first deletes what an earlier attempt
    committed. A table without it is loaded only into a generation nobody reads yet, and indexed uniquely afterwards.
    """
    if rows > DRIVER_ROWS:
        counts = frame.mapInArrow(_copy_partition(target, marked=marked), "rows bigint").toArrow()
        return sum(counts["rows"].to_pylist())
    data = frame.toArrow()
    if data.num_rows:
        arrow.append(target, data)
    return int(data.num_rows)


def _copy_partition(target: Target, *, marked: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if marked and context is not None else None
        first = next(batches, None)
        if first is None:
            return
        rows = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in _chain(first, batches):
                rows += batch.num_rows
                yield batch if task is None else _mark(batch, task)

        schema = first.schema if task is None else _mark(first, task).schema
        arrow.append(target, pa.RecordBatchReader.from_batches(schema, counted()), task=task)
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    return copy


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _mark(batch: pa.RecordBatch, task: int) -> pa.RecordBatch:
    return batch.append_column("_task", pa.repeat(pa.scalar(task, pa.int32()), batch.num_rows))


def read(spark: SparkSession, target: Target, columns: Mapping[str, ColumnType], *, rows: int) -> DataFrame:
    """A table of the store as a DataFrame of the given columns; ``rows`` is how many to expect."""
    query = arrow.select(target, columns)
    if rows <= DRIVER_ROWS:
        batches = arrow.fetch(target.uri, query, columns)
        found = pa.Table.from_batches(batches, arrow.arrow_schema(columns))
        return in_table_order(spark.createDataFrame(found).coalesce(1), columns)
    tasks = 2 * spark.sparkContext.defaultParallelism
    step = arrow.pages(target) // tasks + 1
    bounds = [(task * step, (task + 1) * step) for task in range(tasks)]
    ranges = spark.createDataFrame(bounds, "low bigint, high bigint").repartition(tasks)
    ddl = ", ".join(f"`{c}` {'string' if t.kind == 'decimal' else t.ddl}" for c, t in columns.items())
    return in_table_order(ranges.mapInArrow(_read_pages(target, query, columns), ddl), columns)


def _read_pages(
    target: Target, query: str, columns: Mapping[str, ColumnType]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Each task reads the pages that its row gives: ranges of ctid are scanned without an index."""

    def read_pages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for low, high in zip(batch["low"].to_pylist(), batch["high"].to_pylist(), strict=True):
                part = f"{query} WHERE ctid >= '({low:d},0)'::tid AND ctid < '({high:d},0)'::tid"
                yield from arrow.fetch(target.uri, part, columns)

    return read_pages


def in_table_order(frame: DataFrame, columns: Mapping[str, ColumnType]) -> DataFrame:
    """The given columns in their stored order and types."""
    from pyspark.sql import functions as F

    return frame.select(*(F.col(name).cast(column.ddl).alias(name) for name, column in columns.items()))
