"""Types made of others that are compiled already: optional, list, map, union, and the conversions of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from eventstore.conversions import Convert, as_long, each, each_value, unless_none
from eventstore.errors import UnsupportedFieldType
from eventstore.field_types import Avro, Compilation, Field, FieldType
from eventstore.record_classes import RecordClass
from eventstore.unions import Branch, alike, union_from_plain, union_to_plain


def optional(inner: FieldType) -> FieldType:
    """The type, or None."""
    to_plain, from_plain = unless_none(inner.to_plain), unless_none(inner.from_plain)
    held = inner.avro if isinstance(inner.avro, list) else [inner.avro]
    return FieldType(["null", *held], to_plain, from_plain, inner.enum, inner.record, inner.fields)


def list_of(item: FieldType) -> FieldType:
    """A list of the type."""
    return FieldType({"type": "array", "items": item.avro}, each(item.to_plain), each(item.from_plain))


def map_of(item: FieldType) -> FieldType:
    """A dictionary of texts to the type."""
    avro: Avro = {"type": "map", "values": item.avro}
    return FieldType(avro, each_value(item.to_plain), each_value(item.from_plain))


def union_of(members: Sequence[Any], compiled: Sequence[FieldType], place: str, compilation: Compilation) -> FieldType:
    """One of several types; UnsupportedFieldType where two of them could not be told apart."""
    branches = [_branch(member, kind) for member, kind in zip(members, compiled, strict=True)]
    if (pair := alike(branches)) is not None:
        raise _indistinct(pair, place, compilation)
    to_plain = union_to_plain(branches, lambda: compilation.namespace)
    return FieldType([branch.avro for branch in branches], to_plain, union_from_plain(branches))


def _branch(hint: Any, kind: FieldType) -> Branch:
    to_plain = as_long if kind.avro == "long" else kind.to_plain
    return Branch(_class_of(hint), kind.avro, to_plain, kind.from_plain, kind.record)


def _class_of(hint: Any) -> type:
    """The class of a type's values."""
    if hasattr(hint, "__supertype__"):
        return _class_of(hint.__supertype__)
    origin = get_origin(hint)
    if origin is Annotated:
        return _class_of(get_args(hint)[0])
    found: type = origin or hint
    return found


def _indistinct(pair: tuple[Branch, Branch], place: str, compilation: Compilation) -> UnsupportedFieldType:
    one, other = (branch.cls.__name__ for branch in pair)
    return UnsupportedFieldType(
        f"field {place} of {compilation.owner} holds {one} or {other}, which nobody could tell apart once written",
        remedy="give each a field of its own, or wrap one in a dataclass",
        place=f"{compilation.owner}.{place}",
    )


def record_to_plain(fields: tuple[Field, ...]) -> Convert:
    """Convert an object of a class of fields to the values of its fields."""
    converts = [(field.name, field.type.to_plain) for field in fields]

    def to_plain(value: object) -> dict[str, Any]:
        return {
            name: getattr(value, name) if convert is None else convert(getattr(value, name))
            for name, convert in converts
        }

    return to_plain


def record_from_plain(ways: RecordClass, fields: tuple[Field, ...]) -> Convert:
    """Convert values of fields to an object; those it does not have are left out."""
    converts = {field.name: field.type.from_plain or _same for field in fields}
    construct = ways.construct

    def from_plain(values: Mapping[str, Any]) -> object:
        return construct({name: converts[name](value) for name, value in values.items() if name in converts})

    return from_plain


def _same(value: Any) -> Any:
    return value
