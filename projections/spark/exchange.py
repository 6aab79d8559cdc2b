"""DataFrames to and from the table store: by the driver for small sets, by the executors for large ones.

Nothing that grows with the data passes through the driver. 20,000 rows of some 200 bytes are 4 MB, about one Arrow
batch; below that, starting tasks in Python workers costs more than the transfer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from projections.columns import ColumnType
from projections.tablestore.arrow import Target, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER_ROWS = 20_000


def are_few(rows: int) -> bool:
    """Whether so many rows are quicker through the driver."""
    return rows <= DRIVER_ROWS


def write(frame: DataFrame, target: Target, *, rows: int, marked: bool = True) -> int:
    """Append a DataFrame to a table and return the rows written; ``rows`` is how many to expect at most.

    With ``marked`` the table has a ``_task`` column: a task that is run again first deletes what an earlier attempt
    committed. A table without it is loaded only into a generation nobody reads yet, and indexed uniquely afterwards.
    """
    if not are_few(rows):
        counts = frame.mapInArrow(_copy_partition(target, marked=marked), "rows bigint").toArrow()
        return sum(counts["rows"].to_pylist())
    data = frame.toArrow()
    if data.num_rows:
        target.append(data)
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
        target.append(pa.RecordBatchReader.from_batches(schema, counted()), task=task)
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    return copy


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _mark(batch: pa.RecordBatch, task: int) -> pa.RecordBatch:
    return batch.append_column("_task", pa.repeat(pa.scalar(task, pa.int32()), batch.num_rows))


def few_rows(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows as a DataFrame of one partition."""
    return spark.createDataFrame(rows).coalesce(1)


def fetched(target: Target, columns: Mapping[str, ColumnType]) -> pa.Table:
    """The given columns of a small table of the store, in its Arrow form."""
    return pa.Table.from_batches(target.fetch(columns), arrow_schema(columns))


def read(spark: SparkSession, target: Target, columns: Mapping[str, ColumnType]) -> DataFrame:
    """A large table of the store as a DataFrame of the given columns, read by the executors."""
    tasks = 2 * spark.sparkContext.defaultParallelism
    step = target.extent() // tasks + 1
    bounds = [(task * step, (task + 1) * step) for task in range(tasks)]
    ranges = spark.createDataFrame(bounds, "low bigint, high bigint").repartition(tasks)
    ddl = ", ".join(f"`{c}` {'string' if t.kind == 'decimal' else t.ddl}" for c, t in columns.items())
    return in_table_order(ranges.mapInArrow(_read_parts(target, columns), ddl), columns)


def _read_parts(
    target: Target, columns: Mapping[str, ColumnType]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Each task reads the part of the table that its row gives."""

    def read_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for low, high in zip(batch["low"].to_pylist(), batch["high"].to_pylist(), strict=True):
                yield from target.fetch_between(columns, low, high)

    return read_parts


def in_table_order(frame: DataFrame, columns: Mapping[str, ColumnType]) -> DataFrame:
    """The given columns in their stored order and types."""
    from pyspark.sql import functions as F

    return frame.select(*(F.col(name).cast(column.ddl).alias(name) for name, column in columns.items()))
