"""A payload edited by hand: checked against the schema that its record was written by, and encoded by it.

Personal values are not edited: the file leaves them out, and the record keeps them sealed as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventstore.delivery.masking import MASK
from eventstore.errors import InvalidEventData
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.schema_registry import RegisteredSchema


def edited_values(
    schema: RegisteredSchema, recorded: Mapping[str, Any], edit: Mapping[str, Any], *, place: str
) -> dict[str, Any]:
    """Return the fields of an edit that are not personal. Raises InvalidEventData unless the whole fits the schema.

    `recorded` are the values as they were recorded, personal ones sealed or open.
    """
    chosen = {name: value for name, value in edit.items() if name not in schema.personal or value != MASK}
    names = {field["name"] for field in schema.schema["fields"]} - set(schema.personal)
    for name in sorted(set(chosen) & set(schema.personal)):
        raise _misfit(f"{name} is personal and cannot be edited", f"leave it out, or write {MASK!r}", place)
    for name in sorted(set(chosen) - names):
        raise _misfit(f"{schema.name} has no field {name!r}", f"use {', '.join(sorted(names))}", place)
    for name in sorted(names - set(chosen)):
        raise _misfit(f"the edit lacks field {name!r} of {schema.name}", "give every field, changed or not", place)
    _require_subjects(schema, recorded, chosen, place)
    _require_exact(schema, {**chosen, **dict.fromkeys(schema.personal, b"")}, place)
    return chosen


def _require_subjects(
    schema: RegisteredSchema, recorded: Mapping[str, Any], chosen: Mapping[str, Any], place: str
) -> None:
    """A sealed value is bound to its subject: with another one it cannot be opened."""
    for name in sorted({str(kind["subject"]) for kind in schema.personal.values() if kind.get("subject")}):
        if chosen.get(name) != recorded.get(name):
            raise _misfit(f"{name} names the subject of personal values", "leave it as it was recorded", place)


def _require_exact(schema: RegisteredSchema, values: Mapping[str, Any], place: str) -> None:
    """Refuse what does not fit a field, and what the encoding would change."""
    try:
        _, stored = AvroDecoder(lambda _: schema).decode(AvroEncoder(schema).encode(values))
    except InvalidEventData as error:
        error.place = place
        raise
    for name, value in values.items():
        if stored[name] != value and value == value:  # a double that is no number equals nothing
            raise _misfit(f"{value!r} of {name} would be stored as {stored[name]!r}", "write the exact value", place)


def _misfit(message: str, remedy: str, place: str) -> InvalidEventData:
    return InvalidEventData(message, remedy=remedy, place=place)
