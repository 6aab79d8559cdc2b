"""Queries over few rows, planned once: most of what a small live batch costs is Spark's planning of it.

A prepared query reads its inputs from inlets that every batch fills again: the same physical plan runs each time. A
physical plan that would remember rows of the previous run (a shuffle, a broadcast, a subquery) is made again from the
analysed one. If tasks may run in another JVM, or a query reads anything but its inputs, it is built again each time
(docs/decisions/0016).
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from eventstore.closing import Closing
from projections.spark.exchange import few_rows
from projections.spark.views.catalyst import undivided

Build = Callable[[Mapping[str, DataFrame]], DataFrame]

MOST_BYTES = 32 << 20  # of an input; above that its JSON would be felt in both memories
_REMEMBERS = re.compile(r"Exchange|Subquery")
_READS_ELSEWHERE = re.compile(r"InMemory|BatchScan|FileScan|CommandResult|LocalTableScan|Scan (?!OneRowRelation)")
# A value may be as long as a record of Kafka, and base64 makes it longer; Jackson stops at 20 million characters.
_OPTIONS = {"mode": "FAILFAST", "maxStringLen": str((1 << 31) - 1)}


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
            result = undivided(build({n: inlet.frame for n, inlet in inlets.items()}))
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


@dataclass(frozen=True)
class _Form:
    """How values of a type travel: their JSON, its type in Spark, and the way back."""

    travels: str
    plain: Callable[[pa.ChunkedArray], list[Any]]
    restore: Callable[[Column], Column]


class Inlet:
    """A DataFrame of whatever rows were filled in last. ``name`` is its own within the JVM.

    The plan looks the rows up inside its JVM each time it runs: the driver's JVM has to be the one that runs the tasks.
    A column travels as one JSON array, in a form that loses nothing: times as microseconds, dates as days, decimals and
    bytes as text. FAILFAST stops at the first value that does not fit, where other modes give null for it.
    """

    def __init__(self, spark: SparkSession, name: str, schema: pa.Schema) -> None:
        self._properties = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # noqa: SLF001
        self._name = name
        self._forms = {field.name: _form(field.type) for field in schema}
        self.frame = self._frame(spark)

    @staticmethod
    def carries(schema: pa.Schema) -> bool:
        """Whether every column has a form to travel in."""
        return all(_is_known(field.type) for field in schema)

    def fill(self, rows: pa.Table) -> None:
        """Replace the rows."""
        columns = {name: form.plain(rows[name]) for name, form in self._forms.items()}
        self._properties.setProperty(self._name, json.dumps(columns))

    def close(self) -> None:
        """Forget the rows."""
        self._properties.clearProperty(self._name)

    def _frame(self, spark: SparkSession) -> DataFrame:
        arrays = ", ".join(f"`{name}` array<{form.travels}>" for name, form in self._forms.items())
        text = F.reflect(F.lit("java.lang.System"), F.lit("getProperty"), F.lit(self._name))
        # Projections of their own: inlined into each column, the text would be looked up and parsed once for each.
        parsed = (
            spark.range(0, 1, 1, 1).select(text.alias("text")).select(F.from_json("text", arrays, _OPTIONS).alias("v"))
        )
        zipped = F.arrays_zip(*(F.col("v")[name].alias(name) for name in self._forms))
        rows = parsed.select(F.inline(zipped))
        return rows.select(*(form.restore(F.col(f"`{name}`")).alias(name) for name, form in self._forms.items()))


def _is_known(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    known = (pa.types.is_string, pa.types.is_boolean, pa.types.is_int32, pa.types.is_int64, pa.types.is_float64,
             pa.types.is_binary, pa.types.is_date32, pa.types.is_decimal128)  # fmt: skip
    return any(test(kind) for test in known)


def _form(kind: pa.DataType) -> _Form:
    if pa.types.is_binary(kind):
        return _Form("string", _encoded, F.unbase64)
    if pa.types.is_timestamp(kind):
        return _Form(
            "bigint", lambda c: c.cast(pa.timestamp("us", kind.tz)).cast("int64").to_pylist(), F.timestamp_micros
        )
    if pa.types.is_date32(kind):
        return _Form("int", lambda c: c.cast("int32").to_pylist(), F.date_from_unix_date)
    if pa.types.is_decimal128(kind):
        ddl = f"decimal({kind.precision},{kind.scale})"
        return _Form("string", lambda c: c.cast("string").to_pylist(), lambda c: c.cast(ddl))
    plain = {"string": "string", "bool": "boolean", "int32": "int", "int64": "bigint", "double": "double"}
    return _Form(plain[str(kind)], lambda c: c.to_pylist(), lambda c: c)


def _encoded(column: pa.ChunkedArray) -> list[str | None]:
    return [None if value is None else base64.b64encode(value).decode("ascii") for value in column.to_pylist()]
