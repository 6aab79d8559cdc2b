"""Python field types and their place in Avro; no Avro library is needed to declare events.

A `FieldType` is compiled once per field. `to_plain` and `from_plain` are None where the value needs no
check and no change.

    str → string, no NUL    int → long (64 bits)            float → double          bool → boolean
    bytes → bytes           Decimal → bytes decimal(18, 4), or Annotated[Decimal, Digits(precision, scale)]
    datetime (aware) → long timestamp-micros, UTC           date → int date         UUID → string uuid
    Enum → string (its value where all values are text, else its member's name)
    X | None → ["null", X]  list[X] → array                 dict[str, X] → map      X | Y → union
    dataclass, pydantic model, msgspec struct → record
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin
from uuid import UUID

from eventstore.errors import InvalidEventData, UnsupportedFieldType
from eventstore.fields.conversions import (
    MISFITS,
    Avro,
    Convert,
    as_double,
    as_long,
    as_text,
    as_uuid,
    aware_utc,
    decimal_of,
    each,
    each_value,
    enum_member,
    enum_names,
    enum_text,
    exactly,
    items_to_plain,
    placed,
    unless_none,
    values_to_plain,
    with_path,
)
from eventstore.fields.field_types import Compilation, Digits, Field, FieldType, RecordClass, hints_of, record_class
from eventstore.fields.unions import Branch, alike, union_from_plain, union_to_plain
from eventstore.personal.sealing import Personal, opened

_AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEFAULT_DIGITS: Final = Digits(18, 4)

# fastavro would cut 1.5 to the long 1, read "1.5" as a double and round 2**53 + 1; the numbers of numpy are taken as
# they come.
_PLAIN_TYPES: Final[Mapping[object, FieldType]] = {
    str: FieldType("string", as_text),
    int: FieldType("long", operator.index),
    float: FieldType("double", as_double),
    bytes: FieldType("bytes"),
}


def compile_fields(cls: type, compilation: Compilation) -> tuple[Field, ...]:
    """Compile every field of a class of fields; UnsupportedFieldType names the field that has no place in Avro."""
    ways = record_class(cls)
    return () if ways is None else _fields_of(cls, ways, compilation, marked=True)


def _fields_of(cls: type, ways: RecordClass, compilation: Compilation, *, marked: bool) -> tuple[Field, ...]:
    owner = compilation.owner
    hints = hints_of(cls, compilation.names, f"a field of {owner}", place=owner, kind=UnsupportedFieldType)
    return tuple(
        _compile_field(name, hints[name], default, compilation, marked) for name, default in ways.defaults.items()
    )


def _compile_field(
    name: str, hint: Any, default: Callable[[], Any] | None, compilation: Compilation, marked: bool
) -> Field:
    """Compile one field, which may be `marked` personal."""
    personal = next((note for note in get_args(hint)[1:] if marked and isinstance(note, Personal)), None)
    if personal is None:
        return Field(_avro_name(name, compilation), compile_type(hint, name, compilation), default)
    # What is sealed has to be read by itself: its records are defined within it.
    apart = Compilation(compilation.owner, compilation.names)
    compilation.apart.append(apart)
    inner, *notes = (note for note in get_args(hint) if note is not personal)
    clear = compile_type(Annotated[(inner, *notes)] if notes else inner, name, apart)
    _require_placeholder(personal, clear, f"{compilation.owner}.{name}")
    return Field(_avro_name(name, compilation), replace(clear, from_plain=opened(clear.from_plain)), default, personal)


def _require_placeholder(personal: Personal, clear: FieldType, place: str) -> None:
    try:
        if personal.erased is None and not (isinstance(clear.avro, list) and "null" in clear.avro):
            raise TypeError("None is not one of its values")
        clear.plain(personal.erased)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UnsupportedFieldType(
            f"personal field {place} cannot show {personal.erased!r} once it is erased: {error}",
            remedy='give a placeholder of its type: Annotated[str, Personal(erased="(erased)")], or make it optional',
            place=place,
        ) from None


def compile_hints(hints: Mapping[str, Any], *, owner: str, namespace: str, personal: bool = False) -> tuple[Field, ...]:
    """Compile fields whose types are known, as those of an aggregate's state, ``personal`` ones if they may be marked.

    Raises UnsupportedFieldType.
    """
    compilation = Compilation(owner, {})
    fields = tuple(_compile_field(name, hint, None, compilation, personal) for name, hint in hints.items())
    compilation.named(namespace)
    return fields


def _avro_name(name: str, compilation: Compilation) -> str:
    if _AVRO_NAME.fullmatch(name):
        return name
    raise UnsupportedFieldType(
        f"{compilation.owner} uses the name {name!r}, which Avro does not allow",
        remedy="use ASCII letters, digits and underscores, not starting with a digit",
        place=compilation.owner,
    )


def compile_type(hint: Any, place: str, compilation: Compilation) -> FieldType:
    """Compile one type; UnsupportedFieldType names the place."""
    if hint in _PLAIN_TYPES:
        return _PLAIN_TYPES[hint]
    if isinstance(hint, type) and get_origin(hint) is None:
        return _compile_class(hint, place, compilation)
    return _compile_generic(hint, place, compilation)


def _compile_class(hint: type, place: str, compilation: Compilation) -> FieldType:
    if hint is Decimal:
        return _decimal(_DEFAULT_DIGITS, place, compilation)
    if hint is bool:
        return FieldType("boolean", exactly(bool))
    if hint is date:
        return FieldType({"type": "int", "logicalType": "date"}, exactly(date))
    if hint is datetime:
        return FieldType({"type": "long", "logicalType": "timestamp-micros"}, aware_utc)
    if hint is UUID:
        return FieldType({"type": "string", "logicalType": "uuid"}, exactly(UUID), as_uuid)
    if issubclass(hint, Enum):
        _require_single(hint, place, compilation)
        return _enum(hint, place, compilation)
    if (ways := record_class(hint)) is not None:
        return _record(hint, ways, compilation)
    raise _unsupported(hint, place, compilation)


def _require_single(hint: type[Enum], place: str, compilation: Compilation) -> None:
    if issubclass(hint, Flag):
        raise UnsupportedFieldType(
            f"field {place} of {compilation.owner} is a Flag, whose combinations have no name to be stored by",
            remedy=f"store several of them: list[{hint.__name__}] of an Enum, or an int",
            place=f"{compilation.owner}.{place}",
        )


def _compile_generic(hint: Any, place: str, compilation: Compilation) -> FieldType:
    if hasattr(hint, "__supertype__"):
        return compile_type(hint.__supertype__, place, compilation)
    match get_origin(hint), get_args(hint):
        case origin, (inner, *notes) if origin is Annotated:
            return _annotated(inner, notes, place, compilation)
        case (origin, members) if origin in (Union, UnionType):
            return _union(members, place, compilation)
        case (origin, (item,)) if origin is list:
            return list_of(compile_type(item, f"{place}[]", compilation))
        case (origin, (key, item)) if origin is dict and key is str:
            return map_of(compile_type(item, f"{place}{{}}", compilation))
        case _:
            raise _unsupported(hint, place, compilation)


def _annotated(inner: Any, notes: list[Any], place: str, compilation: Compilation) -> FieldType:
    if any(isinstance(note, Personal) for note in notes):
        raise UnsupportedFieldType(
            f"{place} of {compilation.owner} is personal inside of another value",
            remedy="mark the whole field of the event: Annotated[Address | None, Personal()]",
            place=f"{compilation.owner}.{place}",
        )
    digits = next((note for note in notes if isinstance(note, Digits)), None)
    if inner is Decimal and digits is not None:
        return _decimal(digits, place, compilation)
    return compile_type(inner, place, compilation)


def _decimal(digits: Digits, place: str, compilation: Compilation) -> FieldType:
    # Spark and PostgreSQL tools agree on at most 38 digits.
    if not 0 <= digits.scale <= digits.precision <= 38 or digits.precision == 0:
        raise UnsupportedFieldType(
            f"{digits} of {compilation.owner}.{place} cannot be stored",
            remedy="use a precision from 1 to 38 and a scale from 0 to the precision",
            place=f"{compilation.owner}.{place}",
        )
    avro = {"type": "bytes", "logicalType": "decimal", "precision": digits.precision, "scale": digits.scale}
    return FieldType(avro, decimal_of(digits.precision, digits.scale))


def _enum(hint: type[Enum], place: str, compilation: Compilation) -> FieldType:
    names = enum_names(hint)
    if (odd := next((name for name, text in names.items() if "\0" in text), None)) is not None:
        raise UnsupportedFieldType(
            f"{hint.__qualname__}.{odd} of {compilation.owner}.{place} has the character NUL, which no view can store",
            remedy="give the member another value",
            place=f"{compilation.owner}.{place}",
        )
    # The texts are a property of the type: a schema says which ones its events may hold.
    return FieldType({"type": "string", "enum": names}, enum_text(hint), enum_member(hint), enum=hint)


def _union(members: Sequence[Any], place: str, compilation: Compilation) -> FieldType:
    every = list(_flat(members))
    held = [member for member in every if member is not NoneType]
    compiled = [compile_type(member, place, compilation) for member in held]
    whole = compiled[0] if len(compiled) == 1 else union_of(held, compiled, place, compilation)
    return whole if len(held) == len(every) else optional(whole)


def _flat(members: Sequence[Any]) -> Iterator[Any]:
    """The types of a union, and of unions in it that a note or a new name hides: Avro has none inside another."""
    for member in members:
        inner = _named_type(member)
        if get_origin(inner) in (Union, UnionType):
            yield from _flat(get_args(inner))
        else:
            yield member


def _named_type(hint: Any) -> Any:
    """What stands behind notes and new names; a personal mark stays, and is refused there."""
    if hasattr(hint, "__supertype__"):
        return _named_type(hint.__supertype__)
    if get_origin(hint) is Annotated and not any(isinstance(note, Personal) for note in get_args(hint)):
        return _named_type(get_args(hint)[0])
    return hint


def _record(cls: type, ways: RecordClass, compilation: Compilation) -> FieldType:
    if cls in compilation.records:
        return _record_again(cls, compilation)
    compilation.records[cls] = None
    fields = _fields_of(cls, ways, compilation, marked=False)
    name = _record_name(cls, compilation)
    to_plain, from_plain = record_to_plain(cls, fields), record_from_plain(ways, fields)
    # Avro lets a schema define a record once; later uses are by its name, in the event's own namespace.
    compilation.records[cls] = FieldType(name, to_plain, from_plain, record=name, fields=fields)
    avro = {"type": "record", "name": name, "fields": [field.avro() for field in fields]}
    return FieldType(avro, to_plain, from_plain, record=name, fields=fields)


def _record_again(cls: type, compilation: Compilation) -> FieldType:
    known = compilation.records[cls]
    if known is not None:
        return known
    raise UnsupportedFieldType(
        f"{compilation.owner} holds {cls.__name__}, which contains itself",
        remedy="flatten it: Spark reads no recursive records",
        place=compilation.owner,
    )


def _record_name(cls: type, compilation: Compilation) -> str:
    if any(other is not cls and other.__name__ == cls.__name__ for other in compilation.records):
        raise UnsupportedFieldType(
            f"{compilation.owner} uses two classes named {cls.__name__}",
            remedy="give one of them another name",
            place=compilation.owner,
        )
    return _avro_name(cls.__name__, compilation)


def _unsupported(hint: Any, place: str, compilation: Compilation) -> UnsupportedFieldType:
    return UnsupportedFieldType(
        f"field {place} of {compilation.owner} has type {hint!r}, which has no place in Avro",
        remedy="use str, int, float, bool, bytes, Decimal, datetime, date, UUID, Enum, a dataclass, "
        "or list, dict[str, …], optional and unions of them",
        place=f"{compilation.owner}.{place}",
    )


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
