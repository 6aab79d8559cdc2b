"""The columns of a captured table, from its SQLAlchemy model."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from cdc.changes.change_records import avro_names, nullable_columns
from cdc.changes.column_readers import leaves_nulls, python_type_of, reader_for
from cdc.errors import InvalidConnector, UnsupportedEncoding
from eventstore.identifiers import require_like
from projections.declaring.columns import ColumnType, decimal_type, from_python
from projections.declaring.naming import is_column
from projections.errors import InvalidDefinition

NO_SHAPES: Final[Mapping[str, Any]] = {}
_JSON: Final = ("JSON", "JSONB")
_ZONED_TIME = ColumnType("string", meaning="zoned time")
_AS_TEXT = {
    dt.time: ColumnType("string", meaning="time"),
    dt.timedelta: ColumnType("string", meaning="interval"),
    uuid.UUID: ColumnType("string", meaning="uuid"),
    object: ColumnType("string"),  # what SQLAlchemy knows by name only: addresses, ranges, search vectors
}


def key_and_columns(
    model: Any, *, full_identity: bool = False, shapes: Mapping[str, Any] = NO_SHAPES
) -> tuple[tuple[str, ...], dict[str, ColumnType]]:
    """The primary key and the type of every column of a SQLAlchemy table or mapped class; InvalidDefinition.

    ``shapes`` gives columns of JSON the Python types of what is in them.
    """
    table, named = getattr(model, "__table__", model), named_columns(model)
    columns = {name: _column_type(column, full_identity=full_identity) for name, column in named.items()}
    columns |= {name: _shaped(table, named.get(name), name, annotation) for name, annotation in shapes.items()}
    names = {column: name for name, column in named.items()}
    key = tuple(names[column] for column in table.primary_key.columns)
    if not key:
        raise InvalidDefinition(f"table {table.name!r} has no primary key", remedy="declare one: it keys the topic")
    return key, columns


def named_columns(model: Any) -> dict[str, Any]:
    """The columns of a model by the names that views have for them; InvalidDefinition for one that is not usable.

    They are the attributes of a mapped class, or the keys of a table's columns: ``Column("Order Date", …, key="day")``.
    """
    table = getattr(model, "__table__", model)
    require_like(table, "primary_key", "model", takes="a table of SQLAlchemy, or a mapped class")
    attributes = _attributes(model) if model is not table else {}
    named = {attributes.get(column, column.key): column for column in table.columns}
    for name, column in named.items():
        if not is_column(name):
            raise _unusable(name, column, is_mapped=bool(attributes))
    return named


def _attributes(model: Any) -> dict[Any, str]:
    return {column: attribute.key for attribute in model.__mapper__.column_attrs for column in attribute.columns}


def _unusable(name: str, column: Any, *, is_mapped: bool) -> InvalidDefinition:
    usable = _usable(name)
    line = f"{usable}: Mapped[…] = mapped_column({column.name!r})"
    return InvalidDefinition(
        f"column {name!r} is not a usable name in views",
        remedy=f"give it one of at most 40 letters, digits and underscores: "
        f"{line if is_mapped else f'Column({column.name!r}, …, key={usable!r})'}",
        place=f"{column.table.name}.{column.name}",
    )


def _usable(name: str) -> str:
    """A name like another one, in the letters that views take."""
    plain = unicodedata.normalize("NFKD", name.casefold()).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")
    return (words if words[:1].isalpha() else f"c_{words}".rstrip("_"))[:40].rstrip("_")


def record_names(model: Any) -> dict[str, str]:
    """The names that records have for columns, of those that are named otherwise in views."""
    return {name: column.name for name, column in named_columns(model).items() if column.name != name}


def require_avro_names(topic: str, fields: Sequence[str]) -> None:
    """Refuse columns of one name in Avro; InvalidDefinition."""
    try:
        avro_names(fields, table=topic)
    except UnsupportedEncoding as error:
        raise InvalidDefinition(error.message, remedy=error.remedy, place=error.place) from error


def nullable_keys(model: Any) -> tuple[str, ...]:
    """The columns of a primary key that are declared to be null sometimes, which views' keys may be."""
    return tuple(name for name, column in named_columns(model).items() if column.primary_key and column.nullable)


def nullable_if_absent(model: Any, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that are null in a row that lacks them; InvalidDefinition."""
    try:
        nullable_columns(getattr(model, "__table__", model), names, named_columns(model))
    except InvalidConnector as error:
        raise InvalidDefinition(error.message, remedy=error.remedy, place=error.place) from error
    return tuple(names)


def _column_type(column: Any, *, full_identity: bool) -> ColumnType:
    place = f"{column.table.name}.{column.name}"
    if leaves_nulls(column) and not full_identity:
        raise InvalidDefinition(
            "an update that leaves a long array of this type alone comes as null",
            remedy="give the captured table REPLICA IDENTITY FULL and say full_identity=True, or leave the column out",
            place=place,
        )
    try:
        reader_for(column)
    except UnsupportedEncoding as error:
        raise InvalidDefinition(error.message, remedy=error.remedy, place=place) from error
    return _type_of(column.type, place)


def _shaped(table: Any, column: Any, name: str, annotation: Any) -> ColumnType:
    place = f"{table.name}.{name}"
    if column is None or column.type.__visit_name__ not in _JSON:
        raise InvalidDefinition(
            "a shape is given for what is no column of JSON", remedy="name a JSON column of the table", place=place
        )
    column_type = from_python(annotation, place=place)
    if not column_type.shape:
        raise InvalidDefinition(
            f"the shape of a JSON column is {annotation!r}, which is flat",
            remedy="give a list, a dictionary of texts or a class of fields. Without a shape the column is text",
            place=place,
        )
    return column_type


def _type_of(kind: Any, place: str) -> ColumnType:
    name, python_type = kind.__visit_name__, python_type_of(kind)
    if name == "BIT":
        return ColumnType("string", bits=kind.length or 1)
    if name == "OID":
        return ColumnType("long")
    if name in _JSON:
        return ColumnType("string")  # JSON travels as its text
    if name == "HSTORE":
        return ColumnType("string", meaning="map")
    if python_type is list:
        items = _type_of(kind.item_type, place)
        return ColumnType("string", items=items, shape=f"array<{items.ddl}>", dimensions=kind.dimensions)
    if python_type is Decimal:
        return _decimal(kind, place)
    if python_type in (dt.time, dt.datetime) and kind.timezone:
        return ColumnType("timestamp", meaning="zoned") if python_type is dt.datetime else _ZONED_TIME
    return _AS_TEXT[python_type] if python_type in _AS_TEXT else from_python(python_type, place=place)


def _decimal(kind: Any, place: str) -> ColumnType:
    if kind.precision is None:
        raise InvalidDefinition(
            "a numeric column without precision holds more digits than any column here",
            remedy="declare its digits, for example Numeric(18, 4): values would be rounded silently",
            place=place,
        )
    return decimal_type(kind.precision, kind.scale)
