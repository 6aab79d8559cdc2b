"""Types made of others that are compiled already: optional, list, map, union, and the conversions of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args, get_origin

from eventstore.errors import InvalidEventData, UnsupportedFieldType
from eventstore.fields.conversions import (
    MISFITS,
    Convert,
    as_long,
    each,
    each_value,
    items_to_plain,
    placed,
    unless_none,
    values_to_plain,
    with_path,
)
from eventstore.fields.field_types import Avro, Compilation, Field, FieldType
from eventstore.fields.record_classes import RecordClass
from eventstore.fields.unions import Branch, alike, union_from_plain, union_to_plain


def optional(inner: FieldType) -> FieldType:
    """The type, or None."""
    to_plain, from_plain = unless_none(inner.to_plain), unless_none(inner.from_plain)
    held = inner.avro if isinstance(inner.avro, list) else [inner.avro]
    return replace(inner, avro=["null", *held], to_plain=to_plain, from_plain=from_plain)


def list_of(item: FieldType) -> FieldType:
    """A list of the type."""
    avro: Avro = {"type": "array", "items": item.avro}
    return FieldType(avro, items_to_plain(item.to_plain), with_path("[]", each(item.from_plain)), inner=(item,))


def map_of(item: FieldType) -> FieldType:
    """A dictionary of texts to the type."""
    avro: Avro = {"type": "map", "values": item.avro}
    from_plain = with_path("{}", each_value(item.from_plain))
    return FieldType(avro, values_to_plain(item.to_plain), from_plain, inner=(item,))


def union_of(members: Sequence[Any], compiled: Sequence[FieldType], place: str, compilation: Compilation) -> FieldType:
    """One of several types. Raises UnsupportedFieldType if two of them look alike."""
    branches = [_branch(member, kind) for member, kind in zip(members, compiled, strict=True)]
    if (pair := alike(branches)) is not None:
        raise _indistinct(pair, place, compilation)
    to_plain = union_to_plain(branches, lambda: compilation.namespace)
    avro = [branch.avro for branch in branches]
    return FieldType(avro, to_plain, union_from_plain(branches), inner=tuple(compiled))


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
    value_class: type = origin or hint
    return value_class


def _indistinct(pair: tuple[Branch, Branch], place: str, compilation: Compilation) -> UnsupportedFieldType:
    one, other = (branch.cls.__name__ for branch in pair)
    return UnsupportedFieldType(
        f"field {place} of {compilation.owner} holds {one} or {other}, which cannot be distinguished once written",
        remedy="give each a field of its own, or wrap one in a dataclass",
        place=f"{compilation.owner}.{place}",
    )


def record_to_plain(cls: type, fields: tuple[Field, ...]) -> Convert:
    """Convert an object of a class of fields to the values of its fields; TypeError for one of another class.

    An object of a subclass may have more fields, which would be lost.
    """
    converts = [(field.name, field.type.to_plain) for field in fields]

    def to_plain(value: object) -> dict[str, Any]:
        if type(value) is not cls:
            raise TypeError(f"{type(value).__name__} is not {cls.__name__}")
        return {
            name: getattr(value, name) if convert is None else convert(getattr(value, name))
            for name, convert in converts
        }

    return to_plain


def record_from_plain(ways: RecordClass, fields: tuple[Field, ...]) -> Convert:
    """Convert values of fields to an object; those it does not have are left out.

    InvalidEventData has the path to what is missing, or does not fit, for its place.
    """
    converts = {field.name: field.type.from_plain or _same for field in fields}
    required = frozenset(field.name for field in fields if field.default is None)
    construct = ways.construct

    def from_plain(values: Mapping[str, Any]) -> object:
        if not required <= values.keys():  # some classes would be made without
            raise _missing(min(required - values.keys()))
        try:
            return construct({name: converts[name](value) for name, value in values.items() if name in converts})
        except (InvalidEventData, *MISFITS):
            for name in converts.keys() & values.keys():
                _require_fit(name, converts[name], values[name])
            raise

    return from_plain


def _missing(name: str) -> InvalidEventData:
    return InvalidEventData(
        f"what is stored has no value for {name}",
        remedy="give the new field a default: events stored before it existed stay without it",
        place=f".{name}",
    )


def _require_fit(name: str, convert: Convert, value: Any) -> None:
    try:
        convert(value)
    except InvalidEventData as error:
        raise placed(f".{name}", error) from None
    except MISFITS as error:
        remedy = "upcast the event's field by a function that knows what such a value means"
        raise InvalidEventData(f"{value!r} does not fit {name}", remedy=remedy, place=f".{name}") from error


def _same(value: Any) -> Any:
    return value
