"""Queries over few rows, planned once: most of what a small live batch costs is Spark's planning of it.

A prepared query reads its inputs from inlets that every batch fills again: the same physical plan runs each time. A
physical plan that would remember rows of the previous run (a shuffle, a broadcast, a subquery) is made again from the
analysed one. If tasks may run in another JVM, or a query reads anything but its inputs, it is built again each time
(docs/decisions/0016).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from eventstore.closing import Closing
from projections.spark.exchange import few_rows
from projections.spark.live.inlets import Inlet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Build = Callable[[Mapping[str, "DataFrame"]], "DataFrame"]

MOST_BYTES = 32 << 20  # of an input; above that its JSON would be felt in both memories
_REMEMBERS = re.compile(r"Exchange|Subquery")
_READS_ELSEWHERE = re.compile(r"InMemory|BatchScan|FileScan|CommandResult|LocalTableScan|Scan (?!OneRowRelation)")


class PreparedQueries(Closing):
    """Queries by name, each planned at its first run; ``spark`` is a session for small batches."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._own = f"factfold.batch.{uuid.uuid4().hex}"
        self._one_jvm = re.fullmatch(r"local(\[.*\])?", str(spark.sparkContext.master)) is not None
        self._prepared: dict[str, _Prepared | None] = {}

    def run(self, name: str, build: Build, inputs: Mapping[str, pa.Table]) -> pa.Table:
        """The rows of ``build`` over the inputs; under one name both are the same query over the same columns."""
        if name not in self._prepared:
            self._prepared[name] = self._prepare(name, build, inputs)
        prepared = self._prepared[name]
        if prepared is None or any(rows.nbytes > MOST_BYTES for rows in inputs.values()):
            return build({n: few_rows(self._spark, rows) for n, rows in inputs.items()}).toArrow()
        return prepared.run(inputs)

    def forget(self) -> None:
        """Plan every query again at its next run."""
        for prepared in self._prepared.values():
            if prepared is not None:
                prepared.forget()
        self._prepared.clear()

    def close(self) -> None:
        """Release the rows; the queries cannot be run any more."""
        self.forget()

    def _prepare(self, name: str, build: Build, inputs: Mapping[str, pa.Table]) -> _Prepared | None:
        from pyspark.errors import AnalysisException

        if not self._one_jvm or not all(Inlet.carries(rows.schema) for rows in inputs.values()):
            return None
        inlets = {n: Inlet(self._spark, f"{self._own}.{name}.{n}", rows.schema) for n, rows in inputs.items()}
        try:
            result = build({n: inlet.frame for n, inlet in inlets.items()})
        except AnalysisException:
            return None  # An inlet's rows are others each time, and Spark takes some joins of such rows for mistakes.
        plan = result._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 - the plan has no Python face
        if _READS_ELSEWHERE.search(plan):
            return None
        return _Prepared(result, inlets, remembers=_REMEMBERS.search(plan) is not None)


@dataclass(frozen=True)
class _Prepared:
    result: DataFrame
    inlets: Mapping[str, Inlet]
    remembers: bool

    def run(self, inputs: Mapping[str, pa.Table]) -> pa.Table:
        for name, rows in inputs.items():
            self.inlets[name].fill(rows)
        fresh = self.result.select("*") if self.remembers else self.result
        return fresh.toArrow()

    def forget(self) -> None:
        for inlet in self.inlets.values():
            inlet.close()
