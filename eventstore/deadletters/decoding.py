"""What a letter's record holds, by the schemas of the schemas topic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from eventstore.closing import Closing
from eventstore.deadletters.letters import Contents, Letter, reason
from eventstore.deadletters.records import own_headers
from eventstore.delivery.masking import MASK, shown_payload
from eventstore.errors import FactfoldError, InvalidEventData, ReplayRefused, SchemaError
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.kafka.schemas import TopicSchemas
from eventstore.schema_registry import RegisteredSchema
from eventstore.settings import Settings
from eventstore.topics import TopicRecord


class Decoding(Closing):
    """Decodes records of letters without any key of personal fields, and encodes edited ones."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened: TopicSchemas | None = None

    def contents(self, letter: Letter, record: TopicRecord) -> Contents:
        """Return what a record holds. Of a value that cannot be decoded, return the length alone."""
        payload: Mapping[str, Any] | None = None
        problem = letter.why_not
        try:
            if record.value is not None:
                payload = shown_payload(*self.decoder.decode(record.value))
        except FactfoldError as error:
            problem = reason(error)
        return Contents(
            letter=letter,
            payload=payload,
            problem=problem,
            key=None if record.key is None else record.key.decode(errors="replace"),
            headers={name: "" if v is None else v.decode(errors="replace") for name, v in own_headers(record)},
            bytes=None if record.value is None else len(record.value),
        )

    def edited(self, record: TopicRecord, edit: Mapping[str, Any]) -> bytes:
        """Return the value of an edited record. Raises InvalidEventData, ReplayRefused if it cannot be decoded."""
        try:
            schema, values = self.decoder.decode(record.value or b"")
        except SchemaError as error:
            raise ReplayRefused(
                f"the record cannot be edited, as it cannot be decoded: {error.message}",
                remedy="replay it as it is, or discard it and let its service send the event again",
                place=record.place,
            ) from error
        return AvroEncoder(schema).encode(values | edited_values(schema, values, edit, place=record.place))

    @cached_property
    def decoder(self) -> AvroDecoder:
        """Decodes by the schemas of the schemas topic. Raises TopicMissing, BrokerUnreachable."""
        self._opened = TopicSchemas(self._settings)
        return AvroDecoder(self._opened.schema)

    def close(self) -> None:
        """Let the connection go."""
        if self._opened is not None:
            self._opened.close()


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
