"""Upcasters as columns: declared changes inside the JVM, functions in Python workers before anything is decoded.

The rules and the interpreter are those of `eventstore.fields.upcasting`. Here the values are columns with Avro types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from eventstore.errors import InvalidEventData, NotFramedAvro, SchemaError
from eventstore.event_types import EventType
from eventstore.fields.conversions import (
    DAY,
    IDENTIFIER,
    NUMBER,
    WHOLE,
    Avro,
    cast_kind_of,
    decimal_digits,
    enum_of,
    kind_of,
)
from eventstore.fields.serialization import FRAME, AvroDecoder, schema_id_of
from eventstore.fields.unions import class_of, short_name
from eventstore.fields.upcasting import TypeMeaning
from eventstore.schema_registry import RegisteredSchema, is_sealed
from projections.spark.events.plain_values import MEMBER
from projections.spark.python_workers import settled

_MICROSECONDS_A_DAY: Final = 86_400_000_000
_EXACT: Final = 2**63 - 2**10  # the greatest double below 2^63


@dataclass(frozen=True)
class Reading:
    """How records of one writer schema are read: as `seen`, which names today's type and its fields.

    ``problem`` says why none of them can be.
    """

    written: RegisteredSchema
    kind: EventType
    seen: RegisteredSchema
    problem: str | None = None

    @staticmethod
    def of(written: RegisteredSchema, kind: EventType) -> Reading:
        """Compare a writer's schema with the current type of its records."""
        unchanged = Reading(written, kind, written)
        if unchanged.needs_python:
            return unchanged
        try:
            kind.require_known(written.version)
            return Reading(written, kind, kind.seen(written))
        except SchemaError as error:
            return Reading(written, kind, RegisteredSchema(written.id, kind.name, written.schema), error.message)

    @property
    def needs_python(self) -> bool:
        """Whether a function of Python upcasts such records."""
        return not self.kind.upcasters.declared_from(self.written.version)

    @property
    def missing(self) -> tuple[str, ...]:
        """The required current fields that such records have no value for; a function may give them one."""
        if self.needs_python or self.problem is not None:
            return ()
        held = {field["name"] for field in self.seen.schema["fields"]}
        return tuple(field.name for field in self.kind.fields if field.default is None and field.name not in held)

    @property
    def changes(self) -> bool:
        """Whether what is read differs from what was written."""
        return self.problem is not None or self.seen.schema != self.written.schema

    def today(self, record: Column, sentinel: str) -> Column:
        """A record's struct as it is seen; its ``sentinel`` is false where a value could not be cast."""
        if self.problem is not None:
            return F.when(record.isNotNull(), F.struct(F.lit(False).alias(sentinel)))
        fields = {f["name"]: (record[f["name"]], f["type"]) for f in self.written.schema["fields"]}
        meaning = _Columns()
        carried = self.kind.upcasters.interpret(self.written.version, fields, meaning)
        whole = F.when(reduce(or_, meaning.failed, F.lit(False)), F.lit(False)).otherwise(record[sentinel])
        columns = [self._field(f["name"], carried).alias(f["name"]) for f in self.seen.schema["fields"]]
        return F.when(record.isNotNull(), F.struct(*columns, whole.alias(sentinel)))

    def _field(self, name: str, carried: Mapping[str, tuple[Column, Avro]]) -> Column:
        if name in carried:
            return carried[name][0]
        field = next(field for field in self.kind.fields if field.name == name)
        return literal(self.kind.default_of(name), field.type.avro)


class _Columns:
    """Columns with their Avro types; ``failed`` tells of each cast whether it could not be made."""

    def __init__(self) -> None:
        self.failed: list[Column] = []
        self._types = TypeMeaning()

    def constant(self, value: Any, avro: Avro | None) -> tuple[Column, Avro]:
        """A literal of the constant."""
        return literal(value, avro), self._types.constant(value, avro)

    def cast(self, value: tuple[Column, Avro], to: Avro, field: str) -> tuple[Column, Avro]:
        """The column in the other type, null where that cannot be; a sealed one as it is, until it is opened."""
        column, source = value
        if is_sealed(source):
            return value
        converted = _cast(column, source, to)
        self.failed.append(column.isNotNull() & converted.isNull())
        return converted, self._types.cast(source, to, field)

    def taken(self, field: str, to: str) -> InvalidEventData:
        """The error for a name that another field has."""
        return self._types.taken(field, to)


def literal(value: Any, avro: Any) -> Column:
    """A plain value as a column of its Avro type."""
    match value, avro:
        case None, _:
            return F.lit(None)
        case _, ["null", *others]:
            return literal(value, others[0] if len(others) == 1 else others)
        case _, list(members):
            return _member(value, members)
        case _, {"type": "record", "fields": fields}:
            return F.struct(*(literal(value[f["name"]], f["type"]).alias(f["name"]) for f in fields))
        case _, {"type": "array", "items": items}:
            return F.array(*(literal(item, items) for item in value))
        case _, {"type": "map", "values": values}:
            return F.create_map(*(c for k, v in value.items() for c in (F.lit(k), literal(v, values))))
        case _, {"logicalType": "decimal"}:
            return F.lit(value).cast(_decimal(avro))
        case UUID(), _:
            return F.lit(str(value))
        case bytes(), _:
            return F.lit(bytearray(value))
    return F.lit(value)


def _member(value: Any, members: Sequence[Avro]) -> Column:
    """A value of a union of several types: a struct of one field a branch, all null but its own."""
    name, inner = value if type(value) is tuple else ("", value)
    own = next(n for n, m in enumerate(members) if (short_name(m) == name.rpartition(".")[2] if name else
                                                    type(value) is class_of(m)))  # fmt: skip
    literals = [literal(inner, member) if n == own else F.lit(None) for n, member in enumerate(members)]
    return F.struct(*(literal.alias(f"{MEMBER}{n}") for n, literal in enumerate(literals)))


def _cast(column: Column, source: Avro, target: Avro) -> Column:
    """The casts of `eventstore.fields.conversions`: null where the value cannot be said in the target type."""
    match cast_kind_of(source), kind_of(target):
        case "boolean", "long":
            return column.cast("bigint")
        case "long", "double":
            # Above the bound a double is 2^63 at least, which a cast back would cut to what it came from.
            return F.when(
                (column <= _EXACT) & (column.cast("double").try_cast("bigint") == column), column.cast("double")
            )
        case "long", "decimal":
            return column.try_cast(_decimal(target))
        case "decimal", "decimal":
            converted = column.try_cast(_decimal(target))
            return F.when(converted.try_cast(_decimal(source)) == column, converted)
        case "long" | "decimal" | "uuid", "string":
            return column.cast("string")
        case "date", "timestamp-micros":
            return F.timestamp_micros(F.unix_date(column).cast("bigint") * _MICROSECONDS_A_DAY)
        case "string", "long":
            return _matching(column, WHOLE).try_cast("bigint")
        case "string", "decimal":
            exact = NUMBER.replace(r"[0-9]+)?$", rf"[0-9]{{0,{decimal_digits(target)['scale']}}}0*)?$")
            return _matching(_matching(column, NUMBER), exact).try_cast(_decimal(target))
        case "string", "date":
            return _matching(column, DAY).try_cast("date")
        case "string", "uuid":
            return F.lower(_matching(column, IDENTIFIER))
        case "string", "enum":
            return F.when(column.isin(enum_of(target)), column)
    return column


def _matching(column: Column, pattern: str) -> Column:
    """The text where it matches, else null; in Java's patterns $ alone would let a line break pass."""
    return F.when(column.rlike(rf"{pattern.removesuffix('$')}\z"), column)


def _decimal(avro: Avro) -> str:
    digits = decimal_digits(avro)
    return f"decimal({digits['precision']},{digits.get('scale', 0)})"


def split(value: Column, readings: Sequence[Reading]) -> Column:
    """The framed current values that functions make of a record: an array, null if none of the schemas wrote it.

    A record that becomes no event is an array of itself, because its stream must not lack its version. The same
    holds for a record that a function or Avro refuses: it fails when it is decoded.
    """
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # it is there; its module hides it

    splitter = _Splitter({reading.written.id: reading for reading in readings})

    def split_each(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = AvroDecoder(splitter.schema)
        for batch in batches:
            yield pa.array([splitter.split(framed, decoder) for framed in batch.to_pylist()], pa.list_(pa.binary()))

    split_each.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}  # read by arrow_udf
    column: Column = arrow_udf(settled(split_each), "array<binary>")(value)
    return column


class _Splitter:
    def __init__(self, readings: Mapping[int, Reading]) -> None:
        self._readings = readings

    def schema(self, schema_id: int) -> RegisteredSchema:
        return self._readings[schema_id].written

    def split(self, framed: bytes | None, decoder: AvroDecoder) -> list[bytes] | None:
        if framed is None or len(framed) < FRAME or (reading := self._readings.get(schema_id_of(framed))) is None:
            return None
        try:
            _, values = decoder.decode(framed)
        except NotFramedAvro:
            return [framed]
        events = reading.kind.upcast(reading.written.version, values)
        return [kind.codec.encode(plain) for kind, plain in events] or [framed]
