"""Column types: the few that a key, a fold and a SQL table share, and where they are derived from."""

from __future__ import annotations

import datetime as dt
import enum
import types
import typing
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from eventstore.errors import UnsupportedFieldType
from eventstore.fields.field_compilation import compile_hints
from eventstore.fields.field_types import FieldType
from eventstore.schema_registry import is_sealed
from projections.declaring.avro_records import spelled_out, value_type
from projections.errors import InvalidDefinition

if TYPE_CHECKING:
    import pyarrow as pa

Meaning = Literal["", "map", "time", "zoned time", "zoned", "interval", "uuid"]
Kind = Literal["string", "int", "long", "double", "boolean", "decimal", "timestamp", "date", "binary"]

_SPARK = {"string": "string", "int": "int", "long": "bigint", "double": "double", "boolean": "boolean",
          "timestamp": "timestamp", "date": "date", "binary": "binary"}  # fmt: skip
_PYTHON: dict[type, Kind] = {str: "string", int: "long", float: "double", bool: "boolean", bytes: "binary",
                             Decimal: "decimal", dt.datetime: "timestamp", dt.date: "date",
                             uuid.UUID: "string"}  # fmt: skip
_AVRO: dict[str, Kind] = {"string": "string", "int": "int", "long": "long", "double": "double", "float": "double",
                          "boolean": "boolean", "bytes": "binary", "enum": "string"}  # fmt: skip
_AVRO_LOGICAL: dict[str, Kind] = {"decimal": "decimal", "timestamp-micros": "timestamp", "date": "date",
                                  "uuid": "string"}  # fmt: skip
DEFAULT_PRECISION, DEFAULT_SCALE = 18, 4


@dataclass(frozen=True)
class ColumnType:
    """The type of one column; precision and scale are decimal digits and count for decimals only.

    Text may stand for something that no store of ours has: ``items`` is the type of a JSON array's items, ``bits`` the
    number of a bit string's digits, ``meaning`` what else it is. To joins they are text: only values are compared.
    ``shape`` is the type, in Spark's DDL, of the list, map or record that a view's function gets for its JSON.
    ``dimensions`` is how many an array is declared with, if it says so.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    items: ColumnType | None = field(default=None, compare=False)
    bits: int | None = field(default=None, compare=False)
    meaning: Meaning = field(default="", compare=False)
    shape: str = ""
    dimensions: int | None = field(default=None, compare=False)

    @property
    def said(self) -> str:
        """The type and what its text stands for, for fingerprints."""
        parts = [self.items.said if self.items else "", str(self.bits or ""), self.meaning, self.shape]
        return " ".join([self.ddl, *filter(None, parts)])

    @property
    def varies_in_length(self) -> bool:
        """Whether PostgreSQL may store a value apart, and then leaves it out of an update that does not touch it."""
        return self.kind in ("string", "binary", "decimal")

    @property
    def ddl(self) -> str:
        """The type as Spark's DDL spells it."""
        return f"decimal({self.precision},{self.scale})" if self.kind == "decimal" else _SPARK[self.kind]

    @property
    def opened(self) -> str:
        """The type, in Spark's DDL, of what a view's function gets."""
        return self.shape or self.ddl

    def arrow(self) -> pa.DataType:
        """The Arrow type that Spark and PostgreSQL exchange for the column."""
        import pyarrow as pa

        kinds: Mapping[str, pa.DataType] = {
            "string": pa.string(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64(),
            "boolean": pa.bool_(), "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(), "binary": pa.binary(),
        }  # fmt: skip
        return pa.decimal128(self.precision, self.scale) if self.kind == "decimal" else kinds[self.kind]


def decimal_type(precision: int | None, scale: int | None) -> ColumnType:
    """A decimal column; digits that are not declared are 18 and 4, as in event schemas."""
    if precision is None:
        return ColumnType("decimal", DEFAULT_PRECISION, DEFAULT_SCALE if scale is None else scale)
    return ColumnType("decimal", precision, scale or 0)


def from_python(annotation: Any, *, place: str) -> ColumnType:
    """The column type of a Python annotation: Optional is looked through, an enum is its name's text.

    Lists, dictionaries and records are what they are as fields of events. InvalidDefinition for any other type.
    """
    plain, digits = _unwrap(annotation)
    if plain is Decimal:
        return decimal_type(*digits)
    if isinstance(plain, type) and issubclass(plain, enum.Enum):
        return ColumnType("string")
    if plain in _PYTHON:
        return ColumnType(_PYTHON[plain])
    return from_avro(field_type(annotation, place=place).avro, place=place)


def field_type(annotation: Any, *, place: str) -> FieldType:
    """The Avro form of a Python annotation and its conversions, as a field of an event has them; InvalidDefinition."""
    try:
        (field,) = compile_hints({"value": annotation}, owner=place, namespace="factfold")
    except UnsupportedFieldType as error:
        raise InvalidDefinition(
            f"type {annotation!r} cannot be a column", remedy=f"{error.remedy}, or leave the column out", place=place
        ) from error
    return field.type


def _unwrap(annotation: Any) -> tuple[Any, tuple[int | None, int | None]]:
    """The type without Annotated and Optional, and the decimal digits that Annotated may carry."""
    digits: tuple[int | None, int | None] = (None, None)
    if typing.get_origin(annotation) is typing.Annotated:
        for extra in annotation.__metadata__:
            if hasattr(extra, "precision"):
                digits = (extra.precision, extra.scale)
        annotation = annotation.__origin__
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [m for m in typing.get_args(annotation) if m is not type(None)]
        if len(members) == 1:
            inner, inner_digits = _unwrap(members[0])
            return inner, inner_digits if inner_digits != (None, None) else digits
    return typing.get_origin(annotation) or annotation, digits


def from_avro(schema: Any, *, place: str) -> ColumnType:
    """The column type of an Avro schema (1.12, logical types); unions with null are looked through.

    A personal field has the type that its value has once it is open. InvalidDefinition for what is no column.
    """
    return _from_avro(spelled_out(schema), place)


def _from_avro(schema: Any, place: str) -> ColumnType:
    match value_type(schema):
        case str(name) if name in _AVRO:
            return ColumnType(_AVRO[name])
        case {"type": "array" | "map" | "record"} as nested:
            return ColumnType("string", shape=_shape(nested, place))
        case Mapping() as mapping if is_sealed(mapping):
            return _flat(mapping["personal"], place)
        case {"logicalType": "decimal"} as digits:
            return decimal_type(digits["precision"], digits.get("scale", 0))
        case {"logicalType": logical} if logical in _AVRO_LOGICAL:
            return ColumnType(_AVRO_LOGICAL[logical])
        case {"type": inner}:
            return _from_avro(inner, place)
    raise InvalidDefinition(
        f"type {schema!r} cannot be a column", remedy="declare a column of a field that has one type", place=place
    )


def _shape(schema: Any, place: str) -> str:
    """The type in Spark's DDL of what an Avro schema holds, at any depth."""
    match value_type(schema):
        case {"type": "array", "items": items}:
            return f"array<{_shape(items, place)}>"
        case {"type": "map", "values": values}:
            return f"map<string,{_shape(values, place)}>"
        case {"type": "record", "fields": fields}:
            parts = (f"`{field['name']}`: {_shape(field['type'], place)}" for field in fields)
            return f"struct<{', '.join(parts)}>"
        case flat:
            return _from_avro(flat, place).ddl


def _flat(schema: Any, place: str) -> ColumnType:
    column_type = _from_avro(schema, place)
    if column_type.shape:
        raise InvalidDefinition(
            f"what is personal is {column_type.shape}, and only flat values are stored sealed",
            remedy="make the personal parts fields of the event, each by itself",
            place=place,
        )
    return column_type
