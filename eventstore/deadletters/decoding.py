"""What a letter's record holds, by the schemas of the schemas topic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from eventstore.closing import Closing
from eventstore.deadletters.editing import edited_values
from eventstore.deadletters.letters import Contents, Letter, reason
from eventstore.deadletters.records import own_headers
from eventstore.delivery.masking import shown_payload
from eventstore.errors import FactfoldError, ReplayRefused, SchemaError
from eventstore.fields.serialization import AvroDecoder, AvroEncoder
from eventstore.kafka.schemas import TopicSchemas
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
