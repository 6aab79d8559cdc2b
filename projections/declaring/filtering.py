"""Conditions on the rows of a table: the predicates of branches, held against columns instead of an event's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eventstore.schema_registry import RegisteredSchema
from projections.columns import ColumnType, Kind
from projections.declaring.event_fields import check_leaf, leaves, paths, require_of_one_row
from projections.errors import InvalidDefinition, InvalidPredicate
from projections.predicates import Predicate, TypeTest, required
from projections.tables import Table, VersionTable

_AVRO: Final[Mapping[Kind, Any]] = {
    "string": "string", "int": "int", "long": "long", "double": "double", "boolean": "boolean", "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"}, "date": {"type": "int", "logicalType": "date"},
}  # fmt: skip

_NESTED: Final = {"type": "array", "items": "string"}  # whatever it is, it is there or not, and compared with nothing


def row_schema(columns: Mapping[str, ColumnType]) -> RegisteredSchema:
    """What predicates are compiled for: columns as the fields of a record."""
    fields = [{"name": name, "type": ["null", _avro(column)]} for name, column in columns.items()]
    return RegisteredSchema.of({"type": "record", "namespace": "factfold", "name": "row", "fields": fields})


def _avro(column: ColumnType) -> Any:
    if column.kind == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": column.precision, "scale": column.scale}
    return _NESTED if column.shape else _AVRO[column.kind]


def check_condition(table: Table, condition: Predicate) -> None:
    """Hold a condition against a table; UnknownColumn or InvalidPredicate."""
    if isinstance(table, VersionTable):
        raise InvalidDefinition(
            "a table of versions takes no condition: one that does not meet it would still end the one before",
            remedy="filter the result of as_of in the view's function",
            place=f"topic {table.topic}",
        )
    schema = row_schema(table.columns).schema
    for part in leaves(required(condition)):
        _check_part(table, part)
        check_leaf(part, schema, place=f"topic {table.topic}: {part}")


def _check_part(table: Table, part: Predicate) -> None:
    require_of_one_row(part)
    if isinstance(part, TypeTest):
        raise InvalidPredicate(
            "rows have no event type", remedy="compare a column that an event sets", place=f"topic {table.topic}"
        )
    for column, *_ in paths(part):
        table.require(column)
        if column in table.personal:
            raise InvalidPredicate(
                f"column {column!r} is personal, and a row would have to leave when its person's key is destroyed",
                remedy="compare a clear column",
                place=f"topic {table.topic}",
            )
