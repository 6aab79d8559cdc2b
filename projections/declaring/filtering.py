"""Conditions on the rows of a table: the predicates of branches, held against columns instead of an event's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from eventstore.schema_registry import RegisteredSchema
from projections.declaring.columns import ColumnType, Kind
from projections.declaring.event_fields import check_leaf, paths, require_of_one_row
from projections.declaring.predicates import Predicate, TypeTest, leaves, required
from projections.errors import InvalidPredicate

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


def check_condition(
    condition: Predicate,
    columns: Mapping[str, ColumnType],
    *,
    require: Callable[[str], object],
    personal: Sequence[str],
    place: str,
) -> None:
    """Check a condition against the columns of a table. Raises InvalidPredicate.

    ``require`` refuses a name that is no column.
    """
    schema = row_schema(columns).schema
    for part in leaves(required(condition)):
        _check_part(part, require, personal, place)
        check_leaf(part, schema, place=f"{place}: {part}")


def _check_part(part: Predicate, require: Callable[[str], object], personal: Sequence[str], place: str) -> None:
    require_of_one_row(part)
    if isinstance(part, TypeTest):
        raise InvalidPredicate("rows have no event type", remedy="compare a column that an event sets", place=place)
    for column, *_ in paths(part):
        require(column)
        if column in personal:
            raise InvalidPredicate(
                f"column {column!r} is personal, and a row would have to leave when its person's key is destroyed",
                remedy="compare a clear column",
                place=place,
            )
