"""Records inside an Avro schema: it defines each once, and names it wherever it comes again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def records_in(avro: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The records that a schema defines, by name."""
    if isinstance(avro, list):
        for member in avro:
            yield from records_in(member)
    elif isinstance(avro, Mapping):
        if avro.get("type") == "record":
            yield avro["name"], avro
        for part in (*(field["type"] for field in avro.get("fields", ())), avro.get("items"), avro.get("values")):
            yield from records_in(part)


def spelled_out(avro: Any) -> Any:
    """The schema with every record where it is used; none may hold itself."""
    return _spelled(avro, dict(records_in(avro)))


def _spelled(avro: Any, known: Mapping[str, Any]) -> Any:
    match avro:
        case str():
            return _spelled(known[avro], known) if avro in known else avro
        case list():
            return [_spelled(member, known) for member in avro]
        case {"type": "record", "fields": fields}:
            return {**avro, "fields": [{**field, "type": _spelled(field["type"], known)} for field in fields]}
        case {"type": "array", "items": items}:
            return {**avro, "items": _spelled(items, known)}
        case {"type": "map", "values": values}:
            return {**avro, "values": _spelled(values, known)}
    return avro


def value_type(avro: Any) -> Any:
    """The other type in a union with null, any other type as it is."""
    members = [member for member in avro if member != "null"] if isinstance(avro, list) else [avro]
    return members[0] if len(members) == 1 else avro
