"""DataFrames to and from the table store: by the driver for small sets, by the executors for large ones.

Nothing that grows with the data passes through the driver. 20,000 rows of some 200 bytes are 4 MB, about one Arrow
batch; below that, starting tasks in Python workers costs more than the transfer itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from projections.declaring.columns import ColumnType
from projections.spark.nesting import as_stored
from projections.spark.python_workers import settled
from projections.stores.arrow import Part, Target, arrow_schema

DRIVER_ROWS = 20_000


def are_few(rows: int) -> bool:
    """Whether so many rows are quicker through the driver."""
    return rows <= DRIVER_ROWS


def write(frame: DataFrame, target: Target, *, rows: int) -> int:
    """Append a DataFrame to a table and return the rows written; ``rows`` is how many to expect at most."""
    if are_few(rows):
        data = frame.toArrow()
        return target.append(data) if data.num_rows else 0
    with target.load() as load:
        counts = frame.mapInArrow(settled(_copy_partition(target, load)), "rows bigint").toArrow()
    return sum(counts["rows"].to_pylist())


def _copy_partition(target: Target, load: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context, first = TaskContext.get(), next(batches, None)
        if context is not None and first is not None:
            rows = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))
            written = target.append(rows, part=Part(load, context.partitionId()))
            yield pa.RecordBatch.from_pydict({"rows": [written]})

    return copy


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
    return in_table_order(ranges.mapInArrow(settled(_read_parts(target, columns)), ddl), columns)


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
    """The given columns in their stored order and types; lists, maps and records as their text."""
    return frame.select(*(_stored_column(frame, name, column).alias(name) for name, column in columns.items()))


def _stored_column(frame: DataFrame, name: str, column: ColumnType) -> Column:
    if column.shape and frame.schema[name].dataType.simpleString() != "string":
        return as_stored(F.col(name), column.shape)
    return F.col(name).cast(column.ddl)
