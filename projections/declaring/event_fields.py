"""The fields of events as predicates see them: found by path in a schema, with the numbers that their type can hold.

Conditions on the rows of a table are such predicates, held against columns instead of an event's fields.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final, Literal

from eventstore.event_types import EventType
from eventstore.fields.field_types import FieldType
from eventstore.schema_registry import RegisteredSchema, is_sealed
from projections.declaring.columns import ColumnType, Kind, records_in, value_type
from projections.declaring.predicates import (
    Absence,
    Comparison,
    Constant,
    Family,
    FieldComparison,
    Membership,
    Path,
    Predicate,
    Prefix,
    Relative,
    TypeTest,
    family_of,
    leaves,
    plain,
    required,
)
from projections.errors import InvalidDefinition, InvalidPredicate

_PLAIN: Final[Mapping[str, tuple[Family, str]]] = {
    "string": ("text", ""), "enum": ("text", ""), "boolean": ("flag", ""), "int": ("number", "whole"),
    "long": ("number", "whole"), "float": ("number", "float"), "double": ("number", "float"),
}  # fmt: skip
_LOGICAL: Final[Mapping[str, tuple[Family, str]]] = {
    "decimal": ("number", "decimal"), "date": ("date", ""), "timestamp-micros": ("moment", ""),
    "timestamp-millis": ("moment", ""), "uuid": ("uuid", ""),
}  # fmt: skip
_WHOLE_DIGITS: Final = 19  # of 2^63 - 1
_MOST_DIGITS: Final = 38  # of a decimal in Spark
_ORDERED: Final = frozenset({"text", "number", "date", "moment"})
_AVRO: Final[Mapping[Kind, Any]] = {
    "string": "string", "int": "int", "long": "long", "double": "double", "boolean": "boolean", "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"}, "date": {"type": "int", "logicalType": "date"},
}  # fmt: skip

_NESTED: Final = {"type": "array", "items": "string"}  # whatever it is, it is there or not, and compared with nothing


@dataclass(frozen=True)
class FieldKind:
    """What a field holds; ``number`` says which numbers, digits count for decimals."""

    family: Family
    number: Literal["", "whole", "float", "decimal"] = ""
    precision: int = 0
    scale: int = 0

    def floor(self, value: Fraction) -> int | float | Decimal | None:
        """The greatest number of this kind that is not above a value, or None where all are."""
        if self.number == "float":
            return _float_below(value)
        least, most = (-(2**63), 2**63 - 1) if self.number == "whole" else self._decimal_bounds()
        units = min(math.floor(value * 10**self.scale), most)
        if units < least:
            return None
        return units if self.number == "whole" else Decimal(f"{units}e-{self.scale}")

    def _decimal_bounds(self) -> tuple[int, int]:
        return 1 - 10**self.precision, 10**self.precision - 1

    @property
    def whole_digits(self) -> int:
        """Digits before the point."""
        return _WHOLE_DIGITS if self.number == "whole" else self.precision - self.scale


def _float_below(value: Fraction) -> float:
    try:
        nearest = float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -math.inf
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def kind_at(schema: Mapping[str, Any], path: Path) -> FieldKind | None:
    """The kind of a field in an Avro record schema, None where it has no such field.

    Raises InvalidPredicate where the path leads through something that is no record, or to a personal field.
    """
    records = dict(records_in(schema))
    avro: Any = schema
    for name in path:
        record = _record(avro, records)
        if record is None:
            raise InvalidPredicate(
                f"field {'.'.join(path)!r} looks into {avro!r}, which is no record", remedy="name a field of a record"
            )
        declared = [field["type"] for field in record["fields"] if field["name"] == name]
        if not declared:
            return None
        avro = declared[0]
    if is_sealed(avro):
        raise InvalidPredicate(
            f"field {'.'.join(path)!r} is personal, and a router sees it sealed",
            remedy="compare a clear field, or decide in a subscription that has the keys",
        )
    return _kind(avro)


def field_names(schema: Mapping[str, Any]) -> list[str]:
    """The names of the fields of an event's schema, with dots between records."""
    records = dict(records_in(schema))

    def names(record: Mapping[str, Any], prefix: str) -> Iterator[str]:
        for field in record["fields"]:
            inner = _record(field["type"], records)
            yield prefix + field["name"]
            yield from names(inner, f"{prefix}{field['name']}.") if inner else ()

    return list(names(schema, ""))


def _record(avro: Any, records: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    value_schema = value_type(avro)
    if isinstance(value_schema, str):
        return records.get(value_schema)
    return value_schema if isinstance(value_schema, Mapping) and value_schema.get("type") == "record" else None


def _kind(avro: Any) -> FieldKind:
    value_schema = value_type(avro)
    if isinstance(value_schema, str):
        return _known(_PLAIN.get(value_schema))
    if not isinstance(value_schema, Mapping):
        return FieldKind("other")
    logical = value_schema.get("logicalType")
    if logical == "decimal":
        return FieldKind("number", "decimal", value_schema["precision"], value_schema.get("scale", 0))
    return _known(_LOGICAL.get(logical) if logical else _PLAIN.get(str(value_schema["type"])))


def _known(kind: tuple[Family, Any] | None) -> FieldKind:
    return FieldKind(*kind) if kind else FieldKind("other")


def check_predicate(predicate: Predicate, events: Sequence[EventType]) -> None:
    """Hold a predicate against the event types it will meet.

    Raises InvalidDefinition where a field is one of none of them, InvalidPredicate where a comparison cannot be made.
    """
    for part in leaves(predicate):
        require_of_one_row(part)
        for path in paths(part):
            if not any(kind_at(event.schema, path) for event in events):
                raise _unknown_field(path, events)
        for event in events:
            check_leaf(part, event.schema, place=f"{event.name}: {part}")
            _check_members(part, event)


def require_of_one_row(part: Predicate) -> None:
    """InvalidPredicate for what patterns alone may ask."""
    if isinstance(part, Relative):
        raise InvalidPredicate(
            f"condition {part} looks at other rows",
            remedy="use rows_of(…) in the conditions of a pattern's labels only",
        )


def check_against(predicate: Predicate, schema: RegisteredSchema) -> None:
    """Hold a predicate against the schema that records were written by, which may be older than the declared one.

    Raises InvalidPredicate where a comparison cannot be made.
    """
    for part in leaves(predicate):
        check_leaf(part, schema.schema, place=f"schema {schema.id} of {schema.name}: {part}")


def paths(leaf: Predicate) -> tuple[Path, ...]:
    """The fields that a part looks at."""
    match leaf:
        case FieldComparison(left, _, right):
            return left, right
        case Comparison() | Membership() | Prefix() | Absence():
            return (leaf.path,)
    return ()


def check_leaf(leaf: Predicate, schema: Mapping[str, Any], *, place: str) -> None:
    """Hold one part against one schema; a field that the schema lacks is fine, it is null there."""
    kinds = [kind_at(schema, path) for path in paths(leaf)]
    known = [kind for kind in kinds if kind is not None]
    if isinstance(leaf, Absence) or len(known) < len(kinds) or not known:
        return
    match leaf:
        case FieldComparison(_, symbol, _):
            _check_fields(known[0], known[1], place)
            _check_order(known[0].family, symbol, place)
        case Comparison(_, symbol, value):
            _check_family(known[0], value, place)
            _check_order(known[0].family, symbol, place)
        case Membership(_, values):
            for value in values:
                _check_family(known[0], value, place)
        case Prefix(_, text):
            _check_family(known[0], text, place)


def _check_family(kind: FieldKind, value: Constant, place: str) -> None:
    if family_of(value) != kind.family:
        raise InvalidPredicate(
            f"a field of kind {kind.family} cannot be compared with {plain(value)!r}",
            remedy=f"compare it with a constant of kind {kind.family}" if kind.family != "other" else "use is_null()",
            place=place,
        )


def _check_order(family: str, symbol: str, place: str) -> None:
    if symbol not in {"==", "!="} and family not in _ORDERED:
        raise InvalidPredicate(f"values of kind {family} have no order", remedy="use ==, != or is_in", place=place)


def _check_fields(left: FieldKind, right: FieldKind, place: str) -> None:
    same = left.family == right.family != "other"
    if same and left.family == "number":
        digits = max(left.whole_digits, right.whole_digits) + max(left.scale, right.scale)
        floats = [kind.number == "float" for kind in (left, right)]
        same = all(floats) or (not any(floats) and digits <= _MOST_DIGITS)
    if not same:
        raise InvalidPredicate(
            "these two fields have no type in common that holds the values of both exactly",
            remedy="compare fields of one type. A float compares exactly with floats only",
            place=place,
        )


def _check_members(leaf: Predicate, event: EventType) -> None:
    """An enum's field is a text in its schema; the declaration knows which texts can occur."""
    place = f"{event.name}: {leaf}"
    match leaf:
        case Comparison(path, symbol, value):
            declared = _declared(event, path)
            _check_member(declared, value, place=place)
            if declared is not None and declared.enum is not None:
                _check_order("enum", symbol, place)
        case Membership(path, values):
            for value in values:
                _check_member(_declared(event, path), value, place=place)


def _check_member(declared: FieldType | None, value: Constant, *, place: str) -> None:
    if declared is None:
        return
    kind, is_member = declared.enum, isinstance(value, Enum)
    known = [plain(member) for member in kind] if kind else []
    if (kind is None and is_member) or (kind and (not isinstance(value, kind) if is_member else value not in known)):
        raise InvalidPredicate(
            f"{value!r} is no value of this field",
            remedy=f"it holds one of {', '.join(map(repr, known))}" if kind else "compare it with a plain text",
            place=place,
        )


def _declared(event: EventType, path: Path) -> FieldType | None:
    fields, field_type = event.fields, None
    for name in path:
        field_type = next((field.type for field in fields if field.name == name), None)
        fields = field_type.fields if field_type else ()
    return field_type


def _unknown_field(path: Path, events: Sequence[EventType]) -> InvalidDefinition:
    known = sorted({name for event in events for name in field_names(event.schema)})
    return InvalidDefinition(
        f"no event has a field {'.'.join(path)!r}",
        remedy=f"the fields are: {', '.join(known) or 'none'}",
        place=", ".join(event.name for event in events),
        code="unknown-field",
    )


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
