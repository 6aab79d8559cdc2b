"""Avro bodies in Confluent framing: a zero byte, the schema id in four bytes big-endian, the body."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.validation import validate

from eventstore.errors import InvalidEventData, NotFramedAvro
from eventstore.fields.conversions import Convert, each, each_value, unless_none
from eventstore.fields.unions import class_of, in_python, short_name
from eventstore.schema_registry import RegisteredSchema

# More types than this in a schema, each use of a named one counted, are no event's.
_MOST: Final = 100_000
_FRAME: Final = struct.Struct(">bI")
FRAME: Final = _FRAME.size
_LONGS: Final = range(-(2**63), 2**63)


def endless(avro: Any) -> str | None:
    """Return why a value of a parsed schema might have no end, None where each part of it takes bytes.

    A record within itself ends the process, where each of its values holds another. An array may say that it has 2^60
    items that take no bytes. Records that hold others twice double with each level.
    """
    types = _Types(avro)
    try:
        if types.width(avro) > _MOST:
            return f"has more than {_MOST:,} types"
    except _WithinItself as error:
        return f"has a record within itself: {error}"
    arrays = (part for part in types.parts if part["type"] == "array")
    return "has an array whose items take no bytes" if any(types.is_empty(a["items"]) for a in arrays) else None


class _WithinItself(Exception):
    """A record holds itself."""


class _Types:
    """The types of a schema: its named ones by their names, the widths of those that are known."""

    def __init__(self, avro: Any) -> None:
        self.parts = list(_parts(avro))
        self._named: dict[str, Any] = {part["name"]: part for part in self.parts if "name" in part}
        self._widths: dict[str, int | None] = {}

    def width(self, avro: Any) -> int:
        """Return how many types a type holds, itself included; _WithinItself."""
        if isinstance(avro, str):
            return self._width_of(avro) if avro in self._named else 1
        if isinstance(avro, Mapping) and "name" in avro:
            return self._width_of(avro["name"])
        return 1 + sum(map(self.width, _inner(avro)))

    def _width_of(self, name: str) -> int:
        if name not in self._widths:
            self._widths[name] = None
            self._widths[name] = 1 + sum(map(self.width, _inner(self._named[name])))
        if (known := self._widths[name]) is None:
            raise _WithinItself(name)
        return known

    def is_empty(self, avro: Any) -> bool:
        """Say whether values of a type take no bytes."""
        if isinstance(avro, str):
            return avro == "null" or (avro in self._named and self.is_empty(self._named[avro]))
        if not isinstance(avro, Mapping) or avro["type"] in ("array", "map"):
            return False  # they say where they end, and a union which of its types a value has
        if avro["type"] == "fixed":
            return bool(avro["size"] == 0)
        return all(map(self.is_empty, _inner(avro))) if avro["type"] == "record" else self.is_empty(avro["type"])


def _parts(avro: Any) -> Iterator[Mapping[str, Any]]:
    """Every type of a schema that has others in it, or a name."""
    if isinstance(avro, Mapping):
        yield avro
    for inner in _inner(avro):
        yield from _parts(inner)


def _inner(avro: Any) -> list[Any]:
    """The types that stand directly in a type."""
    if isinstance(avro, list):
        return avro
    if not isinstance(avro, Mapping):
        return []
    others = [avro[key] for key in ("items", "values") if key in avro]
    nested = [] if isinstance(avro["type"], str) else [avro["type"]]
    return [*(field["type"] for field in avro.get("fields", ())), *others, *nested]


def branch_names(avro: Any) -> Convert | None:
    """Return what puts a branch's name before each union value of a parsed schema. None where it has no such union.

    The Avro library takes the first branch that a value can be converted to. An int becomes a double, a text becomes a
    day, and bytes become a list of numbers. Here the class of the value decides.
    """
    return _of(avro, {})


def _of(avro: Any, records: dict[str, Convert | None]) -> Convert | None:
    if isinstance(avro, str):
        return records.get(avro)
    if isinstance(avro, list):
        return _of_union([member for member in avro if member != "null"], records)
    match avro["type"]:
        case "array":
            return each(_of(avro["items"], records))
        case "map":
            return each_value(_of(avro["values"], records))
        case "record":
            return records.setdefault(avro["name"], _of_record(avro["fields"], records))
    return None


def _of_record(fields: Sequence[Mapping[str, Any]], records: dict[str, Convert | None]) -> Convert | None:
    by_name = {field["name"]: _of(field["type"], records) for field in fields}
    converts = {name: convert for name, convert in by_name.items() if convert is not None}
    if not converts:
        return None
    # The Avro library reports a missing name, with the whole record at hand.
    return lambda values: {n: converts[n](v) if n in converts else v for n, v in values.items()}


def _of_union(members: Sequence[Any], records: dict[str, Convert | None]) -> Convert | None:
    converts = [_of(member, records) for member in members]
    if len(members) == 1 and converts[0] is None:
        return None
    # A value that contains a named one needs a name itself: the library would take the names for values.
    names = [_name(member) for member in members]
    by_class = {class_of(member): number for number, member in enumerate(members)}
    by_record = {short_name(name): number for number, name in enumerate(names)}

    def named(value: Any) -> Any:
        is_record = type(value) is tuple  # one of several records
        number = by_record[short_name(value[0])] if is_record else by_class[type(value)]
        inner, convert = value[1] if is_record else value, converts[number]
        return names[number], inner if convert is None else convert(inner)

    return unless_none(named)


def _name(member: Any) -> str:
    """The name that the Avro library knows a branch by: that of a record, else its plain type."""
    if isinstance(member, Mapping):
        return str(member["name"] if "name" in member else member["type"])
    return str(member)


def encode_value(avro: Any, value: Any) -> bytes:
    """Return one plain value as a bare Avro body."""
    buffer, parsed = BytesIO(), parse_schema(avro)
    named = branch_names(parsed)
    schemaless_writer(buffer, parsed, value if named is None else named(value))
    return buffer.getvalue()


def decode_value(avro: Any, body: bytes) -> Any:
    """Return the plain value of a bare Avro body; NotFramedAvro, which tells nothing of it."""
    buffer = BytesIO(body)
    try:
        parsed = parse_schema(avro)
        if (problem := endless(parsed)) is not None:
            raise ValueError(problem)
        value = schemaless_reader(buffer, parsed, None, return_record_name=True, return_record_name_override=True)
    except Exception:
        value, whole = None, False
    else:
        whole = buffer.tell() == len(body)
    if whole:
        return value
    raise NotFramedAvro(  # out here: no cause contains the value
        f"{len(body)} bytes are no Avro value of the type that their schema declares",
        remedy="find the writer that changed the value or its schema",
    )


def require_avro(schema: RegisteredSchema) -> None:
    """Raise NotFramedAvro unless a schema, the clear types of its personal fields and their placeholders are Avro."""
    _parsed(schema)
    for declared in schema.personal.values():
        placeholder(declared)


def _parsed(schema: RegisteredSchema) -> Any:
    try:
        parsed = parse_schema(dict(schema.schema))
        problem = endless(parsed)
    except Exception as error:
        parsed, problem = None, f"is no Avro schema ({type(error).__name__})"
    if problem is None:
        return parsed
    raise NotFramedAvro(
        f"schema {schema.id} of {schema.name} {problem}",
        remedy="find out which service registered it. Nothing can be read by it",
        place=schema.name,
    )


def full_names(schema: Mapping[str, Any]) -> Any:
    """Return a schema in which records have their full names, wherever they are defined or only named."""
    return parse_schema(dict(schema))


def placeholder(declared: Mapping[str, Any]) -> Any:
    """Return the plain value that a personal field shows once its person is erased, by its type in the schema.

    NotFramedAvro.
    """
    try:
        body = base64.b64decode(declared["erased"], validate=True)
    except (KeyError, TypeError, ValueError):
        body = b""
    return decode_value(declared["personal"], body)


class AvroEncoder:
    """Encodes plain values by one schema, parsed once."""

    def __init__(self, registered: RegisteredSchema) -> None:
        self._registered = registered
        self._parsed = _parsed(registered)
        self._named = branch_names(self._parsed)
        self._frame = _FRAME.pack(0, registered.id)

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return the framed value; InvalidEventData names the field that does not fit."""
        buffer = BytesIO()
        buffer.write(self._frame)
        try:
            schemaless_writer(buffer, self._parsed, values if self._named is None else self._named(values))
        except Exception as error:
            raise self._misfit(values, error) from error
        return buffer.getvalue()

    def _misfit(self, values: Mapping[str, Any], cause: Exception) -> InvalidEventData:
        name = self._registered.name
        field = next(iter(self._misfits(values)), None)
        if field is None:
            return InvalidEventData(f"{name}: {cause}", remedy="give each field a value of its type", place=name)
        return InvalidEventData(
            f"{values.get(field)!r} does not fit field {field} of {name}",
            remedy=f"give the field a value of type {self._declared(field)}",
            place=f"{name}.{field}",
        )

    def _declared(self, name: str) -> str:
        return next(in_python(field["type"]) for field in self._registered.schema["fields"] if field["name"] == name)

    def _misfits(self, values: Mapping[str, Any]) -> list[str]:
        return [
            field["name"]
            for field in self._registered.schema["fields"]
            if not _fits(values.get(field["name"]), field["type"])
        ]


def _fits(value: object, avro: Any) -> bool:
    if isinstance(value, int) and avro == "long":
        return value in _LONGS
    try:
        encode_value(avro, value)
    except Exception:
        return False
    return bool(validate(value, avro, raise_errors=False))


class AvroDecoder:
    """Decodes framed values, looking up each writer's schema once.

    `lookup` returns the schema of an id or raises UnknownSchema.
    """

    def __init__(self, lookup: Callable[[int], RegisteredSchema]) -> None:
        self._lookup = lookup
        self._parsed: dict[int, tuple[RegisteredSchema, Any]] = {}

    def decode(self, framed: bytes) -> tuple[RegisteredSchema, dict[str, Any]]:
        """Return the writer's schema and the plain values; NotFramedAvro or UnknownSchema where that fails."""
        schema_id = schema_id_of(framed)
        schema, parsed = self._parsed.get(schema_id) or self._parse(schema_id)
        body = BytesIO(framed)
        body.seek(_FRAME.size)
        try:
            # A union of several records yields pairs of record name and value. A union of one record yields the value.
            values = schemaless_reader(body, parsed, None, return_record_name=True, return_record_name_override=True)
        except Exception as error:
            raise _broken(framed) from error
        if body.tell() != len(framed):
            raise _broken(framed)
        return schema, values  # type: ignore[return-value]  # the schema of an event is a record

    def _parse(self, schema_id: int) -> tuple[RegisteredSchema, Any]:
        schema = self._lookup(schema_id)
        return self._parsed.setdefault(schema_id, (schema, _parsed(schema)))


def schema_id_of(framed: bytes) -> int:
    """Return the schema id in front of a body; NotFramedAvro where there is no frame."""
    if len(framed) < _FRAME.size or framed[0] != 0:
        raise NotFramedAvro(
            f"value {framed[:16].hex(' ')} does not start with the Confluent frame",
            remedy="check that this topic holds events, and that its writer frames Avro",
        )
    return int(_FRAME.unpack_from(framed)[1])


def _broken(framed: bytes) -> NotFramedAvro:
    return NotFramedAvro(
        f"{len(framed)} bytes {framed[:16].hex(' ')}… are no Avro body of schema {schema_id_of(framed)}",
        remedy="treat the record as a dead letter, and find the writer that cut or changed it",
    )
