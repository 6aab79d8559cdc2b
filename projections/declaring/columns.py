"""Column types: the few that a key, a fold and a SQL table share, where they are derived from, and what sets columns.

An Avro schema defines each record once, and names it wherever it comes again.

Columns of a stored view that it does not show are partial aggregates of its groups, and columns of its partitions.
Their names begin with an underscore, which no name of a user's does. What is served does not have them.
"""

from __future__ import annotations

import datetime as dt
import enum
import types
import typing
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from eventstore.errors import UnsupportedFieldType
from eventstore.event_types import EventType, event_type_of
from eventstore.fields.field_compilation import compile_hints
from eventstore.fields.field_types import FieldType
from eventstore.identifiers import require_type
from eventstore.schema_registry import is_sealed
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


def records_in(avro: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The records that a schema defines, by name."""
    if isinstance(avro, list):
        for member in avro:
            yield from records_in(member)
    elif isinstance(avro, Mapping):
        if avro.get("type") == "record":
            yield avro["name"], avro
        for part in (*(field["type"] for field in avro.get("fields", ())), avro.get("items"), avro.get("values")):
            yield from records_in(part)


def spelled_out(avro: Any) -> Any:
    """The schema with every record where it is used; none may hold itself."""
    return _spelled(avro, dict(records_in(avro)))


def _spelled(avro: Any, known: Mapping[str, Any]) -> Any:
    match avro:
        case str():
            return _spelled(known[avro], known) if avro in known else avro
        case list():
            return [_spelled(member, known) for member in avro]
        case {"type": "record", "fields": fields}:
            return {**avro, "fields": [{**field, "type": _spelled(field["type"], known)} for field in fields]}
        case {"type": "array", "items": items}:
            return {**avro, "items": _spelled(items, known)}
        case {"type": "map", "values": values}:
            return {**avro, "values": _spelled(values, known)}
    return avro


def value_type(avro: Any) -> Any:
    """The other type in a union with null, any other type as it is."""
    members = [member for member in avro if member != "null"] if isinstance(avro, list) else [avro]
    return members[0] if len(members) == 1 else avro


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


ROWS: Final = "_rows"  # how many rows a group has
WHOLE: Final = "_whole"  # in ``result_*``: the group's changes do not tell what becomes of it
BEFORE, AFTER, GROUPS = "before", "after", "groups"  # what is added up: changed rows, and what is kept of their groups
SCOPE: Final = "_by_"  # before the name of a column of partitions that a query does not return
LONG: Final = ColumnType("long")


def is_partial(column: str) -> bool:
    """Whether a column holds a partial aggregate."""
    return column.startswith("_") and not column.startswith(SCOPE)


def shown(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The columns that a view shows."""
    return {name: kind for name, kind in columns.items() if not name.startswith("_")}


def hidden(columns: Mapping[str, ColumnType]) -> dict[str, ColumnType]:
    """The partial aggregates among the columns of a view."""
    return {name: kind for name, kind in columns.items() if is_partial(name)}


@dataclass(frozen=True)
class Setter:
    """One event type that sets a column: from a field of the event, or to a constant."""

    event: EventType
    field: str | None
    value: str | int | bool | None = None

    def column_type(self) -> ColumnType:
        """The type of what this setter writes."""
        if self.field is None:
            return from_python(type(self.value), place=self.event.name)
        return from_avro(self._field_schema(self.field), place=f"{self.event.name}.{self.field}")

    @property
    def personal(self) -> bool:
        """Whether what it takes is sealed under the key of a person."""
        return self.field is not None and is_sealed(self._field_schema(self.field))

    @property
    def placeholder(self) -> str | None:
        """What the field shows after an erasure, as its schema stores it; None if it is not personal."""
        return str(self._field_schema(self.field or "")["erased"]) if self.personal else None

    def _field_schema(self, name: str) -> Any:
        for candidate in spelled_out(self.event.schema)["fields"]:
            if candidate["name"] == name:
                return candidate["type"]
        known = ", ".join(f["name"] for f in self.event.schema["fields"])
        raise InvalidDefinition(
            f"event {self.event.name} has no field {name!r}", remedy=f"its fields are: {known}", code="unknown-column"
        )


@dataclass(frozen=True)
class On:
    """The left half of a declared column: ``on(Order.Placed).take("amount")``."""

    event: EventType

    def take(self, name: str) -> Setter:
        """Set the column from a field of the event."""
        setter = Setter(self.event, name)
        setter.column_type()
        return setter

    def set(self, value: str | int | bool) -> Setter:
        """Set the column to a constant."""
        return Setter(self.event, None, value)


def on(event: type) -> On:
    """Say what an event does to a column.

    Examples:
        >>> {"amount": on(Order.Placed).take("amount"), "paid": on(Order.Paid).set(True)}
    """
    return On(event_type_of(event))


Declared = Mapping[str, Setter | Sequence[Setter]]
Setters = Mapping[str, tuple[Setter, ...]]


def as_setters(declared: Declared) -> Setters:
    """The setters of each column as a tuple."""
    setters = {column: (s,) if isinstance(s, Setter) else s for column, s in declared.items()}
    for column, given in setters.items():
        for setter in given if isinstance(given, list | tuple) else [given]:
            require_type(setter, Setter, f"column {column!r}", takes="setters: on(Order.Placed).take('amount')")
    return {column: tuple(given) for column, given in setters.items()}


def agreed_type(column: str, setters: Sequence[Setter], *, place: str) -> ColumnType:
    """The one type of all setters of a column, or InvalidDefinition."""
    kinds = {setter.column_type() for setter in setters}
    if len(kinds) == 1:
        return kinds.pop()
    raise InvalidDefinition(
        f"column {column!r} is set to different types: {', '.join(sorted(k.opened for k in kinds)) or 'none'}",
        remedy="give every setter of a column the same type, and at least one setter",
        place=place,
    )


def taken_from_personal(setters: Mapping[str, Sequence[Setter]]) -> tuple[str, ...]:
    """The columns that any of their setters takes from a personal field."""
    return tuple(column for column, choices in setters.items() if any(setter.personal for setter in choices))


def placeholders(setters: Mapping[str, Sequence[Setter]]) -> str:
    """What columns show after an erasure, as a part of a signature; nothing without personal ones."""
    shown = {column: [s.placeholder for s in setters[column]] for column in taken_from_personal(setters)}
    return f"|{shown}" if shown else ""
