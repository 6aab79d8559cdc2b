"""What travels: commands in, events out, and what the store adds when it records them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import NoneType
from typing import Any, Final
from uuid import UUID, uuid4

from eventstore.errors import InvalidIdentifier
from eventstore.given_values import require_type
from eventstore.identifiers import Position

_MAX_METADATA_LENGTH: Final = 255
_WORDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Why a message exists.

    Attributes:
        correlation_id: The conversation.
        causation_id: The message that caused this one.
        traceparent: The W3C trace context.

    Examples:
        >>> service = Dispatcher(store).with_metadata(Metadata(correlation_id="checkout-77"))
    """

    correlation_id: str | None = None
    causation_id: str | None = None
    traceparent: str | None = None

    def __post_init__(self) -> None:
        for value in (self.correlation_id, self.causation_id, self.traceparent):
            if value is not None:
                _check_metadata(value)

    def of_what_follows(self, cause: UUID) -> Metadata:
        """Return the metadata of a message that this one leads to: the same conversation, with `cause` as the cause."""
        own_id = str(cause)
        return Metadata(correlation_id=self.correlation_id or own_id, causation_id=own_id, traceparent=self.traceparent)


def _check_metadata(value: str) -> None:
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MAX_METADATA_LENGTH:
        raise InvalidIdentifier(
            f"metadata value {str(value)[:80]!r} is too long or holds characters that cannot be printed",
            remedy=f"use at most {_MAX_METADATA_LENGTH} printable characters",
        )


NO_METADATA = Metadata()


@dataclass(frozen=True, slots=True)
class Cause:
    """What an event's causation id says: the id of a command or an event, and of a command perhaps more.

    `name` is that of a command which may be sent again, or was sent for an event; `of` is the id of that event.
    """

    id: str
    name: str | None = None
    of: str | None = None

    def __str__(self) -> str:
        return " ".join(word for word in (self.id, self.name, self.of) if word is not None)

    @staticmethod
    def parse(text: str | None) -> Cause | None:
        """Read a causation id; one that is not ours is an id as it stands."""
        if text is None:
            return None
        words = text.split(" ")
        if len(words) > _WORDS or not is_uuid(words[0]) or (len(words) == _WORDS and not is_uuid(words[-1])):
            return Cause(text)
        return Cause(*words)


def is_uuid(text: str | None) -> bool:
    """Say whether a text is a UUID as `str` writes it."""
    try:
        return text is not None and str(UUID(text)) == text
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Command:
    """One request to one aggregate, addressed by stream and named `category.method`.

    Examples:
        >>> service.send("o1", Order.place, customer_id=7, quantity=2).command.name
        'order.place'
    """

    name: str
    stream: str
    arguments: Mapping[str, object]
    id: UUID = field(default_factory=uuid4)
    metadata: Metadata = NO_METADATA

    def caused(self) -> Metadata:
        """Return the metadata of what this command causes: same conversation, this command as the cause."""
        return self.metadata.of_what_follows(self.id)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append under an id, or with metadata, of the caller's choice.

    Attributes:
        event: An object of an event class.
        id: The event's id, by default a new one. Repeating an append under the same ids returns the first result.
        metadata: The event's metadata, by default that of the append.

    Examples:
        >>> placed = Order.Placed(customer_id=7, quantity=2)
        >>> store.append("order-o1", [NewEvent(placed, id=request_id)], expected=NO_STREAM).repeated
        False
    """

    event: object
    id: UUID | None = None
    metadata: Metadata | None = None

    def __post_init__(self) -> None:
        require_metadata(self.metadata)
        if self.id is not None and not isinstance(self.id, UUID):
            raise InvalidIdentifier(
                f"event id {str(self.id)[:80]!r} is a {type(self.id).__name__}", remedy="give a UUID, or none"
            )


def require_metadata(metadata: object) -> None:
    """Raise WrongType for what is neither metadata nor None."""
    require_type(metadata, (Metadata, NoneType), "metadata", takes="Metadata(…), or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event as the store has it. `Order.events_of(recorded)` turns it into its class.

    Attributes:
        id: The event's id.
        stream: The stream's name.
        version: The place in the stream, counted from 0.
        type: The event type.
        schema_id: The id of the schema that wrote it.
        schema_version: The version of the class that wrote it.
        data: The fields as Avro gives them: enums as text, nested records as dictionaries, placeholders for an erased
            person.
        metadata: The conversation, cause and trace.
        time: When it was recorded, UTC.
        position: The place in the whole store.

    Examples:
        >>> [recorded.type for recorded in store.read_stream("order-o1")]
        ['order.placed']
    """

    id: UUID
    stream: str
    version: int
    type: str
    schema_id: int
    schema_version: int = 1
    data: Mapping[str, Any]
    metadata: Metadata
    time: datetime
    position: Position

    def caused(self) -> Metadata:
        """Return the metadata of a command this event leads to: same conversation, this event as the cause."""
        return self.metadata.of_what_follows(self.id)
