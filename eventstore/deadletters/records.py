"""Dead-letter records of Kafka: what their headers say, which of them are copies of one letter, which are settled.

What a letter's record holds, by the schemas of the schemas topic.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from eventstore.closing import Closing
from eventstore.deadletters.letters import Action, Contents, Letter, reason
from eventstore.delivery.source import MASK, shown_payload
from eventstore.errors import FactfoldError, ForeignRecord, InvalidEventData, ReplayRefused, SchemaError
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.kafka.consumer import TopicSchemas
from eventstore.kafka.producer import OutgoingRecord
from eventstore.schema_registry import RegisteredSchema
from eventstore.settings import Settings
from eventstore.topics import DEAD_LETTER_OMITTED, DEAD_LETTER_PREFIX, TopicRecord

_OWN: Final = ("ce_id", "ce_type", "ce_subject")

Place = tuple[int, int]
"""Partition and offset in the dead-letter topic."""


@dataclass(frozen=True, slots=True)
class ListedLetter:
    """An open letter and the places of all its copies: a subscriber that was killed may have sent it twice.

    The letter tells what the newest copy says, under the id of the oldest, which stays. `origin` is the topic, the
    partition and the offset that it came from, as far as the headers say it.
    """

    letter: Letter
    places: tuple[Place, ...]
    key: bytes | None
    origin: tuple[str | None, int | None, int | None]

    @property
    def first(self) -> Place:
        """The place of the oldest copy."""
        return self.places[0]


def id_of(place: Place) -> str:
    """Return the id of the letter at a place: `0@17`."""
    return f"{place[0]}@{place[1]}"


def letter_fields(record: TopicRecord) -> dict[str, str]:
    """Return the headers that the record has as a dead letter, without their prefix."""
    return {
        name.removeprefix(DEAD_LETTER_PREFIX): _text(value)
        for name, value in record.headers
        if name.startswith(DEAD_LETTER_PREFIX)
    }


def own_headers(record: TopicRecord) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers that the record had before it became a letter."""
    return tuple(pair for pair in record.headers if not pair[0].startswith(DEAD_LETTER_PREFIX))


def header(record: TopicRecord, name: str) -> str | None:
    """Return one of the record's own headers as text."""
    return next((_text(value) for key, value in record.headers if key == name), None)


def _letter(record: TopicRecord, fields: Mapping[str, str]) -> Letter:
    own = {name: value for name, value in record.headers if name in _OWN}
    event_id, kind, stream = (None if own.get(name) is None else _text(own[name]) for name in _OWN)
    return Letter(
        id=id_of((record.partition, record.offset)),
        origin=f"{fields.get('topic', '?')}[{fields.get('partition', '?')}]@{fields.get('offset', '?')}",
        error=fields.get("error", "unknown"),
        message=fields.get("message", ""),
        attempts=_number(fields.get("attempts")) or 0,
        time=_time(fields.get("time")),
        event_id=event_id,
        type=kind,
        stream=stream,
        why_not=_why_not(record, fields),
    )


def open_letters(records: Iterable[TopicRecord], settled: Collection[Place]) -> dict[str, ListedLetter]:
    """Return the letters that are not settled, by id, the oldest first. Copies of one death are one letter."""
    copies: dict[tuple[object, ...], ListedLetter] = {}
    for record in records:
        place = record.partition, record.offset
        if place in settled:
            continue
        fields = letter_fields(record)
        letter = _letter(record, fields)
        # A source topic that was made again has other records at the places of the former one's.
        identity = letter.origin, fields.get("group"), letter.event_id, record.key, hash(record.value)
        places: tuple[Place, ...] = (place,)
        if (before := copies.get(identity)) is not None:
            letter, places = replace(letter, id=before.letter.id), (*before.places, place)
        origin = fields.get("topic"), _number(fields.get("partition")), _number(fields.get("offset"))
        copies[identity] = ListedLetter(letter, places, record.key, origin)
    return {listed.letter.id: listed for listed in copies.values()}


def settlement(action: Action, places: Iterable[Place], topic: str, *, home: str) -> OutgoingRecord:
    """Return the record that says what was done with a letter. `home` is the id of its dead-letter topic."""
    others = {"time": action.time.isoformat(), "home": home, "places": [list(place) for place in places]}
    values = asdict(action) | others
    return OutgoingRecord(topic=topic, key=action.letter.encode(), value=json.dumps(values).encode(), partition=0)


def read_settlement(record: TopicRecord) -> tuple[Action, str, list[Place]]:
    """Read what `settlement` wrote: the action, the home of its letter, the places in it.

    Raises ForeignRecord for another record: a letter that it settles might be repeated.
    """
    try:
        values: Mapping[str, Any] = json.loads(record.value or b"")
        places = [(int(partition), int(offset)) for partition, offset in values["places"]]
        fields = {name: value for name, value in values.items() if name not in ("places", "home")}
        return Action(**fields | {"time": datetime.fromisoformat(values["time"])}), str(values["home"]), places
    except (ValueError, KeyError, TypeError) as error:
        raise ForeignRecord(
            "a record of the topic of settled letters is no action",
            remedy="find the writer of the record: Factfold alone writes to this topic",
            place=record.place,
        ) from error


def origin_partition(record: TopicRecord, topic: str) -> int | None:
    """Return the partition of a topic that the record was in, None where it died elsewhere."""
    fields = letter_fields(record)
    return _number(fields.get("partition")) if fields.get("topic") == topic else None


def _why_not(record: TopicRecord, fields: Mapping[str, str]) -> str | None:
    if record.value is not None:
        return None
    if (size := header(record, DEAD_LETTER_OMITTED)) is not None:
        return f"the letter does not hold the record: {size} bytes are more than a topic takes"
    return (
        f"the letter does not hold the record, which could not be read: {fields.get('error', 'its batch is damaged')}"
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _time(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


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
