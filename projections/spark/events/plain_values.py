"""Decoded events as Python workers get them from Arrow, made the plain values that fastavro gives.

Spark gives a UUID as text, and a union of several types as a struct of one field a type, numbered in the order of the
schema that wrote the event: what a value is, only that schema tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from eventstore.fields.conversions import Convert, each, each_value, unless_none
from eventstore.fields.serialization import full_names
from eventstore.schema_registry import RegisteredSchema

MEMBER: Final = "member"


def plain_values(schema: RegisteredSchema) -> Convert | None:
    """Return what makes an event's values plain; None where those of the schema are."""
    return _of(full_names(schema.schema), {})


def _of(avro: Any, records: dict[str, Convert | None]) -> Convert | None:
    if isinstance(avro, str):
        return records.get(avro)
    if isinstance(avro, list):
        others = [member for member in avro if member != "null"]
        return _of(others[0], records) if len(others) == 1 else _of_union(others, records)
    if avro.get("logicalType") == "uuid":
        return unless_none(UUID)
    return unless_none(_of_nested(avro, records))


def _of_nested(avro: Mapping[str, Any], records: dict[str, Convert | None]) -> Convert | None:
    match avro["type"]:
        case "array":
            return each(_of(avro["items"], records))
        case "map":
            return each_value(_of(avro["values"], records))
        case "record":
            convert = _of_record(avro["fields"], records)
            return records.setdefault(avro["name"], unless_none(convert))
    return None


def _of_record(fields: Sequence[Mapping[str, Any]], records: dict[str, Convert | None]) -> Convert | None:
    all_converts = {field["name"]: _of(field["type"], records) for field in fields}
    converts = {name: convert for name, convert in all_converts.items() if convert is not None}
    if not converts:
        return None
    return lambda values: values | {n: convert(values[n]) for n, convert in converts.items() if n in values}


def _of_union(members: Sequence[Any], records: dict[str, Convert | None]) -> Convert:
    converts = {f"{MEMBER}{number}": _of(member, records) for number, member in enumerate(members)}
    named = {f"{MEMBER}{number}": name for number, m in enumerate(members) if (name := _record_name(m, records))}

    def plain(value: Mapping[str, Any]) -> Any:
        member, inner = next((name, inner) for name, inner in value.items() if inner is not None)
        convert = converts[member]
        plain_value = inner if convert is None else convert(inner)
        return (named[member], plain_value) if len(named) > 1 and member in named else plain_value

    return lambda value: None if value is None else plain(value)


def _record_name(avro: Any, records: Mapping[str, Convert | None]) -> str | None:
    name = avro if isinstance(avro, str) else avro.get("name")
    return name if name in records else None
