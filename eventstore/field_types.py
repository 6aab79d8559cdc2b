"""Python field types and their place in Avro; no Avro library is needed to declare events.

A `FieldType` is compiled once per field. `to_plain` and `from_plain` are None where the value needs no
change, so that recording an event of plain fields touches no field at all.

    str → string            int → long (64 bits)            float → double          bool → boolean
    bytes → bytes           Decimal → bytes decimal(18, 4), or Annotated[Decimal, Digits(precision, scale)]
    datetime (aware) → long timestamp-micros, UTC           date → int date         UUID → string uuid
    Enum → string (its value where all values are text, else its member's name)
    X | None → ["null", X]  list[X] → array                 dict[str, X] → map      X | Y → union
    dataclass, pydantic model, msgspec struct → record
"""

from __future__ import annotations

import base64
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from eventstore.conversions import (
    Convert,
    as_long,
    as_uuid,
    aware_utc,
    each,
    each_value,
    enum_member,
    enum_texts,
    exactly,
    unless_none,
    within,
)
from eventstore.errors import UnsupportedFieldType
from eventstore.personal import Personal, opened
from eventstore.record_classes import RecordClass, record_class
from eventstore.unions import Branch, alike, union_from_plain, union_to_plain

Avro = str | dict[str, Any] | list[Any]

_AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEFAULT_PRECISION: Final = 18
DEFAULT_SCALE: Final = 4


@dataclass(frozen=True, slots=True)
class Digits:
    """How many digits a Decimal field has in all, and how many of them follow the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class FieldType:
    """One type's Avro form and its two conversions; None means the value stays as it is.

    `enum` is the class behind a text, `fields` are those of a record.
    """

    avro: Avro
    to_plain: Convert | None = None
    from_plain: Convert | None = None
    enum: type[Enum] | None = None
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """One named field of a record; `default` makes its default, and is None where the field is required."""

    name: str
    type: FieldType
    default: Callable[[], Any] | None
    personal: Personal | None = None

    def avro(self) -> dict[str, Any]:
        """Return the field as an Avro record declares it; only an optional field has an Avro default."""
        if self.personal is not None:
            return {"name": self.name, "type": self._sealed(self.personal)}
        declared = {"name": self.name, "type": self.type.avro}
        nullable = isinstance(self.type.avro, list) and self.default is not None and self.default() is None
        return declared | ({"default": None} if nullable else {})

    def _sealed(self, personal: Personal) -> dict[str, Any]:
        from eventstore.serialization import encode_value

        to_plain = self.type.to_plain
        erased = personal.erased if to_plain is None else to_plain(personal.erased)
        placeholder = base64.b64encode(encode_value(self.type.avro, erased)).decode("ascii")
        return {"type": "bytes", "personal": self.type.avro, "erased": placeholder}


@dataclass(slots=True)
class Compilation:
    """The class being declared, names its annotations may use, and the nested records met so far.

    `namespace` is where its records are named, and known only when an aggregate claims the class.
    """

    owner: str
    names: Mapping[str, Any]
    records: dict[type, FieldType | None] = field(default_factory=dict)
    namespace: str = ""
    apart: list[Compilation] = field(default_factory=list)

    def named(self, namespace: str) -> None:
        """Say where the records are named."""
        for compilation in (self, *self.apart):
            compilation.namespace = namespace


# fastavro would cut 1.5 to the long 1 and read "1.5" as a double; these two functions of C refuse that, and
# take the numbers of numpy as they come.
_PLAIN_TYPES: Final[Mapping[object, FieldType]] = {
    str: FieldType("string"),
    int: FieldType("long", operator.index),
    float: FieldType("double", operator.pos),
    bytes: FieldType("bytes"),
}


def compile_fields(cls: type, compilation: Compilation) -> tuple[Field, ...]:
    """Compile every field of a class of fields; UnsupportedFieldType names the field that has no place in Avro."""
    ways = record_class(cls)
    if ways is None:
        return ()
    hints = _hints(cls, compilation)
    return tuple(_compile_field(name, hints[name], default, compilation) for name, default in ways.defaults.items())


def _compile_field(name: str, hint: Any, default: Callable[[], Any] | None, compilation: Compilation) -> Field:
    personal = next((note for note in get_args(hint)[1:] if isinstance(note, Personal)), None)
    if personal is None:
        return Field(_avro_name(name, compilation), _compile(hint, name, compilation), default)
    # What is sealed has to be read by itself: its records are defined within it.
    apart = Compilation(compilation.owner, compilation.names)
    compilation.apart.append(apart)
    inner, *notes = (note for note in get_args(hint) if note is not personal)
    clear = _compile(Annotated[(inner, *notes)] if notes else inner, name, apart)
    _require_placeholder(personal, clear, f"{compilation.owner}.{name}")
    return Field(_avro_name(name, compilation), replace(clear, from_plain=opened(clear.from_plain)), default, personal)


def _require_placeholder(personal: Personal, clear: FieldType, place: str) -> None:
    try:
        if personal.erased is None and not (isinstance(clear.avro, list) and "null" in clear.avro):
            raise TypeError("None is not one of its values")
        _ = personal.erased if clear.to_plain is None else clear.to_plain(personal.erased)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UnsupportedFieldType(
            f"personal field {place} cannot show {personal.erased!r} once it is erased: {error}",
            remedy='give a placeholder of its type: Annotated[str, Personal(erased="(erased)")], or make it optional',
            place=place,
        ) from None


def compile_hints(hints: Mapping[str, Any], *, owner: str, namespace: str) -> tuple[Field, ...]:
    """Compile fields whose types are known, as those of an aggregate's state; UnsupportedFieldType."""
    compilation = Compilation(owner, {}, namespace=namespace)
    return tuple(Field(_avro_name(n, compilation), _compile(hint, n, compilation), None) for n, hint in hints.items())


def compile_type(hint: Any, place: str, compilation: Compilation) -> FieldType:
    """Compile one type; UnsupportedFieldType names the place."""
    return _compile(hint, place, compilation)


def _compile_record(cls: type, ways: RecordClass, compilation: Compilation) -> tuple[Field, ...]:
    hints = _hints(cls, compilation)
    return tuple(
        Field(_avro_name(name, compilation), _compile(hints[name], name, compilation), default)
        for name, default in ways.defaults.items()
    )


def _avro_name(name: str, compilation: Compilation) -> str:
    if _AVRO_NAME.fullmatch(name):
        return name
    raise UnsupportedFieldType(
        f"{compilation.owner} uses the name {name!r}, which Avro does not allow",
        remedy="use ASCII letters, digits and underscores, not starting with a digit",
        place=compilation.owner,
    )


def _hints(cls: type, compilation: Compilation) -> dict[str, Any]:
    try:
        return get_type_hints(cls, localns=compilation.names, include_extras=True)
    except NameError as error:
        raise UnsupportedFieldType(
            f"{compilation.owner} has a field whose type cannot be found: {error}",
            remedy="import the type in the module of the event, or define it above the event",
            place=compilation.owner,
        ) from None


def _compile(hint: Any, place: str, compilation: Compilation) -> FieldType:
    if hint in _PLAIN_TYPES:
        return _PLAIN_TYPES[hint]
    if isinstance(hint, type) and get_origin(hint) is None:
        return _compile_class(hint, place, compilation)
    return _compile_generic(hint, place, compilation)


def _compile_class(hint: type, place: str, compilation: Compilation) -> FieldType:
    if hint is Decimal:
        return _decimal(Digits(DEFAULT_PRECISION, DEFAULT_SCALE), place, compilation)
    if hint is bool:
        return FieldType("boolean", exactly(bool))
    if hint is date:
        return FieldType({"type": "int", "logicalType": "date"}, exactly(date))
    if hint is datetime:
        return FieldType({"type": "long", "logicalType": "timestamp-micros"}, aware_utc)
    if hint is UUID:
        return FieldType({"type": "string", "logicalType": "uuid"}, exactly(UUID), as_uuid)
    if issubclass(hint, Enum):
        return _enum(hint)
    if (ways := record_class(hint)) is not None:
        return _record(hint, ways, compilation)
    raise _unsupported(hint, place, compilation)


def _compile_generic(hint: Any, place: str, compilation: Compilation) -> FieldType:
    if hasattr(hint, "__supertype__"):
        return _compile(hint.__supertype__, place, compilation)
    match get_origin(hint), get_args(hint):
        case origin, (inner, *notes) if origin is Annotated:
            return _annotated(inner, notes, place, compilation)
        case (origin, members) if origin in (Union, UnionType):
            return _union(members, place, compilation)
        case (origin, (item,)) if origin is list:
            return _list(_compile(item, f"{place}[]", compilation))
        case (origin, (key, item)) if origin is dict and key is str:
            return _map(_compile(item, f"{place}{{}}", compilation))
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
    return _compile(inner, place, compilation)


def _decimal(digits: Digits, place: str, compilation: Compilation) -> FieldType:
    # Spark and PostgreSQL tools agree on at most 38 digits.
    if not 0 <= digits.scale <= digits.precision <= 38 or digits.precision == 0:
        raise UnsupportedFieldType(
            f"{digits} of {compilation.owner}.{place} cannot be stored",
            remedy="use a precision from 1 to 38 and a scale from 0 to the precision",
            place=f"{compilation.owner}.{place}",
        )
    avro = {"type": "bytes", "logicalType": "decimal", "precision": digits.precision, "scale": digits.scale}
    return FieldType(avro, within(digits.precision - digits.scale))


def _enum(hint: type[Enum]) -> FieldType:
    texts = enum_texts(hint)
    return FieldType("string", texts.__getitem__, enum_member(hint, texts), enum=hint)


def _union(members: Sequence[Any], place: str, compilation: Compilation) -> FieldType:
    held = [member for member in members if member is not NoneType]
    compiled = [_compile(member, place, compilation) for member in held]
    whole = compiled[0] if len(compiled) == 1 else _several(held, compiled, place, compilation)
    return whole if len(held) == len(members) else _optional(whole)


def _several(members: Sequence[Any], compiled: Sequence[FieldType], place: str, compilation: Compilation) -> FieldType:
    branches = [
        Branch(
            _class_of(member),
            kind.avro,
            as_long if kind.avro == "long" else kind.to_plain,
            kind.from_plain,
            _record_of(kind),
        )
        for member, kind in zip(members, compiled, strict=True)
    ]
    if (pair := alike(branches)) is not None:
        raise _indistinct(pair, place, compilation)
    to_plain = union_to_plain(branches, lambda: compilation.namespace)
    return FieldType([branch.avro for branch in branches], to_plain, union_from_plain(branches))


def _class_of(hint: Any) -> type:
    """The class of a type's values."""
    if hasattr(hint, "__supertype__"):
        return _class_of(hint.__supertype__)
    origin = get_origin(hint)
    if origin is Annotated:
        return _class_of(get_args(hint)[0])
    found: type = origin or hint
    return found


def _record_of(kind: FieldType) -> str | None:
    """The name of a record, whether it is defined here or only named."""
    if not kind.fields:
        return None
    return str(kind.avro["name"] if isinstance(kind.avro, dict) else kind.avro)


def _indistinct(pair: tuple[Branch, Branch], place: str, compilation: Compilation) -> UnsupportedFieldType:
    one, other = (branch.cls.__name__ for branch in pair)
    return UnsupportedFieldType(
        f"field {place} of {compilation.owner} holds {one} or {other}, which nobody could tell apart once written",
        remedy="give each a field of its own, or wrap one in a dataclass",
        place=f"{compilation.owner}.{place}",
    )


def _optional(inner: FieldType) -> FieldType:
    to_plain, from_plain = unless_none(inner.to_plain), unless_none(inner.from_plain)
    held = inner.avro if isinstance(inner.avro, list) else [inner.avro]
    return FieldType(["null", *held], to_plain, from_plain, inner.enum, inner.fields)


def _list(item: FieldType) -> FieldType:
    return FieldType({"type": "array", "items": item.avro}, each(item.to_plain), each(item.from_plain))


def _map(item: FieldType) -> FieldType:
    avro: Avro = {"type": "map", "values": item.avro}
    return FieldType(avro, each_value(item.to_plain), each_value(item.from_plain))


def _record(cls: type, ways: RecordClass, compilation: Compilation) -> FieldType:
    if cls in compilation.records:
        return _record_again(cls, compilation)
    compilation.records[cls] = None
    fields = _compile_record(cls, ways, compilation)
    name = _record_name(cls, compilation)
    to_plain, from_plain = _record_to_plain(fields), _record_from_plain(ways, fields)
    # Avro lets a schema define a record once; later uses are by its name, in the event's own namespace.
    compilation.records[cls] = FieldType(name, to_plain, from_plain, fields=fields)
    avro = {"type": "record", "name": name, "fields": [field.avro() for field in fields]}
    return FieldType(avro, to_plain, from_plain, fields=fields)


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


def _record_to_plain(fields: tuple[Field, ...]) -> Convert:
    converts = [(field.name, field.type.to_plain) for field in fields]

    def to_plain(value: object) -> dict[str, Any]:
        return {
            name: getattr(value, name) if convert is None else convert(getattr(value, name))
            for name, convert in converts
        }

    return to_plain


def _record_from_plain(ways: RecordClass, fields: tuple[Field, ...]) -> Convert:
    converts = {field.name: field.type.from_plain or _same for field in fields}
    construct = ways.construct

    def from_plain(values: Mapping[str, Any]) -> object:
        return construct({name: converts[name](value) for name, value in values.items() if name in converts})

    return from_plain


def _same(value: Any) -> Any:
    return value


def _unsupported(hint: Any, place: str, compilation: Compilation) -> UnsupportedFieldType:
    return UnsupportedFieldType(
        f"field {place} of {compilation.owner} has type {hint!r}, which has no place in Avro",
        remedy="use str, int, float, bool, bytes, Decimal, datetime, date, UUID, Enum, a dataclass, "
        "or list, dict[str, …], optional and unions of them",
        place=f"{compilation.owner}.{place}",
    )
