"""Few rows handed to a plan that stays: JSON that the plan looks up inside the JVM each time it runs.

A column travels as one JSON array, in a form that loses nothing: times as microseconds, dates as days, decimals and
bytes as text. Reading stops at the first value that does not fit, and never gives null for it. The driver's JVM has to
be the one that runs the tasks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

# A value may be as long as a record of Kafka, and base64 makes it longer; Jackson stops at 20 million characters.
_OPTIONS = {"mode": "FAILFAST", "maxStringLen": str((1 << 31) - 1)}


@dataclass(frozen=True)
class _Form:
    """How values of a type travel: their JSON, its type in Spark, and the way back."""

    travels: str
    plain: Callable[[pa.ChunkedArray], list[Any]]
    restore: Callable[[Column], Column]


class Inlet:
    """A DataFrame of whatever rows were filled in last; ``name`` is its own within the JVM."""

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
