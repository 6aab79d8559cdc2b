"""``from_avro`` for a Spark without the Avro jar: fastavro in Python workers, Arrow in and out.

The columns are the same as the JVM's, and take some ten times as long. With it Factfold runs on Python and Java alone,
without fetched jars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from eventstore.errors import NotFramedAvro
from eventstore.fields.serialization import FRAME, AvroDecoder
from eventstore.fields.unions import class_of, short_name
from eventstore.schema_registry import RegisteredSchema
from projections.spark.events.plain_values import MEMBER
from projections.spark.python_workers import settled

if TYPE_CHECKING:
    from pyspark.sql import Column

_PLAIN = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
          "boolean": pa.bool_(), "bytes": pa.binary(), "enum": pa.string(), "fixed": pa.binary()}  # fmt: skip
_LOGICAL = {"timestamp-micros": pa.timestamp("us", "UTC"), "timestamp-millis": pa.timestamp("us", "UTC"),
            "date": pa.date32(), "uuid": pa.string()}  # fmt: skip


def avro_in_the_jvm() -> bool:
    """Whether the active session has Spark's Avro module; Spark itself brings the function, and not what it calls."""
    from py4j.java_gateway import JavaClass
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001 - what pyspark.sql.avro.functions itself asks
    jvm = context._jvm if context is not None else None  # noqa: SLF001
    return isinstance(getattr(jvm, "org.apache.spark.sql.avro.AvroDataToCatalyst", None), JavaClass)


def parsed_in_python(value: Column, schema: RegisteredSchema, *, sentinel: str) -> Column:
    """A struct of the schema's fields and a true ``sentinel``; null where a record has another schema or is broken."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # it is there; its module hides it
    from pyspark.sql.pandas.types import from_arrow_type

    kinds = Kinds()
    fields = [(field["name"], kinds.of(field["type"])) for field in schema.schema["fields"]]
    kind = pa.struct([*((name, k.arrow) for name, k in fields), (sentinel, pa.bool_())])
    parse = _parser(schema, {name: k.convert for name, k in fields if k.convert}, sentinel)

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        parsed = parse()
        for batch in batches:
            yield pa.array(parsed(batch), kind)

    decode.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}  # read by arrow_udf
    column: Column = arrow_udf(settled(decode), from_arrow_type(kind))(value)
    return column


Row = dict[str, Any]
Convert = Callable[[Any], Any]


def _parser(
    schema: RegisteredSchema, converts: Mapping[str, Convert], sentinel: str
) -> Callable[[], Callable[[pa.Array], list[Row | None]]]:
    frame = b"\x00" + schema.id.to_bytes(FRAME - 1, "big")

    def start() -> Callable[[pa.Array], list[Row | None]]:
        decoder = AvroDecoder({schema.id: schema}.__getitem__)  # made in the worker: it keeps what it has parsed

        def row(framed: bytes) -> Row | None:
            try:
                _, values = decoder.decode(framed)
            except NotFramedAvro:
                return None
            return values | {name: convert(values[name]) for name, convert in converts.items()} | {sentinel: True}

        def rows(batch: pa.Array) -> list[Row | None]:
            decoded: list[Row | None] = [None] * len(batch)
            ours = pc.indices_nonzero(pc.equal(pc.binary_slice(batch, 0, FRAME), frame))
            for place, framed in zip(ours.to_pylist(), batch.take(ours).to_pylist(), strict=True):
                decoded[place] = row(framed)
            return decoded

        return rows

    return start


class Kind:
    """The Arrow type of an Avro type, and what fastavro's values need to fit it; nothing, mostly."""

    def __init__(self, arrow: pa.DataType, convert: Convert | None = None) -> None:
        self.arrow = arrow
        self.convert = convert


class Kinds:
    """The kinds of one schema; records are named where they first stand and meant by their name afterwards."""

    def __init__(self) -> None:
        self._named: dict[str, Kind] = {}

    def of(self, avro: Any) -> Kind:
        """The kind of a field's type."""
        if isinstance(avro, list):
            return self._optional(avro)
        if isinstance(avro, str):
            return self._named.get(avro) or Kind(_PLAIN[avro])
        if avro.get("logicalType") == "decimal":
            return Kind(pa.decimal128(avro["precision"], avro.get("scale", 0)))
        if avro.get("logicalType") == "uuid":
            return Kind(pa.string(), str)
        if avro.get("logicalType") in _LOGICAL:
            return Kind(_LOGICAL[avro["logicalType"]])
        return self._nested(avro)

    def _optional(self, members: list[Any]) -> Kind:
        others = [member for member in members if member != "null"]
        kind = self.of(others[0]) if len(others) == 1 else self._several(others)
        convert = kind.convert
        return Kind(kind.arrow, None if convert is None else lambda v: None if v is None else convert(v))

    def _several(self, members: list[Any]) -> Kind:
        """A struct of one field a branch, all null but the one that the value is of."""
        kinds = [self.of(member) for member in members]
        by_class = {class_of(member): number for number, member in enumerate(members)}
        by_name = {short_name(member): number for number, member in enumerate(members)}

        def convert(value: Any) -> Row:
            named = type(value) is tuple  # one of several records
            number = by_name[value[0].rpartition(".")[2]] if named else by_class[type(value)]
            inner, kind = value[1] if named else value, kinds[number]
            return {f"{MEMBER}{number}": inner if kind.convert is None else kind.convert(inner)}

        return Kind(pa.struct([(f"{MEMBER}{n}", kind.arrow) for n, kind in enumerate(kinds)]), convert)

    def _nested(self, avro: Mapping[str, Any]) -> Kind:
        if avro["type"] == "array":
            return _each(self.of(avro["items"]))
        if avro["type"] == "map":
            return _entries(self.of(avro["values"]))
        kind = self._record(avro) if avro["type"] == "record" else Kind(_PLAIN[avro["type"]])
        if "name" in avro:
            space = f"{avro['namespace']}." if "namespace" in avro else ""
            self._named[avro["name"]] = self._named[f"{space}{avro['name']}"] = kind
        return kind

    def _record(self, avro: Mapping[str, Any]) -> Kind:
        fields = {field["name"]: self.of(field["type"]) for field in avro["fields"]}
        converts = {name: kind.convert for name, kind in fields.items() if kind.convert}
        arrow = pa.struct([(name, kind.arrow) for name, kind in fields.items()])
        if not converts:
            return Kind(arrow)
        return Kind(arrow, lambda v: v | {name: convert(v[name]) for name, convert in converts.items()})


def _each(item: Kind) -> Kind:
    convert = item.convert
    return Kind(pa.list_(item.arrow), None if convert is None else lambda values: [convert(v) for v in values])


def _entries(value: Kind) -> Kind:
    convert = value.convert or (lambda v: v)
    return Kind(pa.map_(pa.string(), value.arrow), lambda mapping: [(k, convert(v)) for k, v in mapping.items()])
