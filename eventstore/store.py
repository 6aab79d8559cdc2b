"""The port of every event store, with its errors in the signatures.

What travels: commands in, events out, and what the store adds when it records them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import NoneType
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID, uuid4

from eventstore.errors import InvalidIdentifier
from eventstore.identifiers import ExpectedVersion, Position, StreamName, require_type

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
class RecordedCommand:
    """A command as it is stored with its first event, for `decide_again`.

    Attributes:
        name: The command, `category.method`.
        arguments: Its arguments as plain values, by name. One of an erased person is `Erased`.
        subjects: The subject of each personal argument, by the argument's name. These are stored sealed.

    Examples:
        >>> store.commands_of([event.id])[event.id].name
        'order.place'
    """

    name: str
    arguments: Mapping[str, Any]
    subjects: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append under an id, or with metadata, of the caller's choice.

    Attributes:
        event: An object of an event class.
        id: The event's id, by default a new one. Repeating an append under the same ids returns the first result.
        metadata: The event's metadata, by default that of the append.
        command: The command to store with the event, which is the first one that it led to.

    Examples:
        >>> placed = Order.Placed(customer_id=7, quantity=2)
        >>> store.append("order-o1", [NewEvent(placed, id=request_id)], expected=NO_STREAM).repeated
        False
    """

    event: object
    id: UUID | None = None
    metadata: Metadata | None = None
    command: RecordedCommand | None = None

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


@dataclass(frozen=True, slots=True)
class StreamAppend:
    """Events to append to one stream.

    Attributes:
        stream: The stream.
        events: Objects of event classes, or NewEvent.
        expected: The expected version of the stream.
        metadata: The conversation, cause and trace of the events.

    Examples:
        >>> placed = Order.Placed(customer_id=7, quantity=2)
        >>> appends = [StreamAppend(stream, [placed], NO_STREAM) for stream in ("order-o1", "order-o2")]
        >>> [result.version for result in store.append_batch(appends)]
        [0, 0]
    """

    stream: StreamName | str
    events: Sequence[object]
    expected: ExpectedVersion
    metadata: Metadata | None = None

    def __post_init__(self) -> None:
        require_metadata(self.metadata)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """How one stream's events were recorded, in their order.

    Attributes:
        stream: The stream.
        versions: Their versions.
        positions: Their positions in the store.
        ids: Their ids.
        time: When they were recorded.
        schema_ids: The ids of the schemas that wrote them.
        repeated: The events were appended before, and this is the result of the first append.

    Examples:
        >>> store.append("order-o1", [Order.Placed(customer_id=7, quantity=2)], expected=NO_STREAM).versions
        range(0, 1)
    """

    stream: str
    versions: range
    positions: tuple[Position, ...]
    ids: tuple[UUID, ...]
    time: datetime
    schema_ids: tuple[int, ...]
    repeated: bool = field(default=False, compare=False)

    @property
    def version(self) -> int:
        """The stream's version after the append."""
        return self.versions[-1]


@dataclass(frozen=True, slots=True)
class Category:
    """A category and its topic.

    Attributes:
        name: The category.
        topic: The topic.
        partitions: The partition count, which never changes.
        generation: The number of its current topic. Publishing again makes the next one.

    Examples:
        >>> [category.topic for category in store.categories()]
        ['order']
    """

    name: str
    topic: str
    partitions: int
    generation: int


@dataclass(frozen=True, slots=True)
class FenceStatus:
    """Committed events that readers do not see yet.

    Attributes:
        waiting: How many events wait.
        age: For how many seconds the oldest writing transaction has been open: 0.0 without one, None if unknown.
        holder: The session of that transaction, None without one.

    Examples:
        >>> store.fence().waiting
        0
    """

    waiting: int
    age: float | None
    holder: str | None


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """The version of a store's tables.

    Attributes:
        installed: The last migration of the tables, None without tables.
        newest: The newest migration of this release.

    Examples:
        >>> version = store.version()
        >>> version.installed == version.newest
        True
    """

    installed: str | None
    newest: str

    @property
    def is_current(self) -> bool:
        """Whether the tables are at the newest version."""
        return self.installed == self.newest


class Streams(Protocol):
    """Streams of events, appended under an expected version and read in order: all that a dispatcher needs.

    Examples:
        >>> streams: Streams = SqlEventStore("sqlite:///shop.db")
        >>> service = Dispatcher(streams)
    """

    def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
    ) -> AppendResult:
        """Append to one stream.

        Events with ids of their own (NewEvent) are appended once: repeating the append returns the first result.

        Args:
            stream: The stream.
            events: Objects of event classes, or NewEvent.
            expected: The version that the stream must have, or NO_STREAM, STREAM_EXISTS or ANY.
            metadata: The conversation, cause and trace of the events.

        Returns:
            `versions`, `positions`, `ids` and `schema_ids` of the events, their `time`, and whether the append was
            `repeated`.

        Raises:
            WrongExpectedVersion: The stream is at another version.
            StreamDeleted: The stream was deleted.
            StreamArchived: The stream is archived.
            InvalidArgument: There are no events.
            InvalidEventData: A value does not fit its field.
            EventIdTaken: An event of the same id was appended before.
            SchemaIncompatible: A new class cannot read the stored events of its type.

        Examples:
            >>> store.append("order-o1", [Order.Paid(amount=120)], expected=0)
        """
        return self.append_batch([StreamAppend(stream, events, expected, metadata)])[0]

    @abstractmethod
    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, all or none. Returns and raises what `append` does for each."""

    def read_stream(
        self,
        stream: StreamName | str,
        *,
        from_version: int = 0,
        to_version: int | None = None,
        until: datetime | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[RecordedEvent]:
        """Yield one stream's events by version, both bounds included. An unknown stream has none.

        Args:
            stream: The stream.
            from_version: The first version.
            to_version: The last version, by default the newest.
            until: Stop before the first event recorded after this moment, even if a clock went backwards.
            backwards: Begin at the highest version.
            limit: The number of events at most.

        Raises:
            InvalidEventData: The moment has no time zone.
            InvalidArgument: A version or the limit is below zero.
        """

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""

    def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""


class EventStore(Streams, Protocol):
    """Streams of events with one order, and operations on finished streams.

    Examples:
        >>> store: EventStore = SqlEventStore("sqlite:///shop.db")
        >>> store.delete_stream("order-o1", expected=STREAM_EXISTS)
        1
    """

    def read_all(
        self, *, after: Position | None = None, category: str | None = None, limit: int | None = None
    ) -> Iterator[RecordedEvent]:
        """Yield events in store order behind the fence: none is skipped, no stream out of order.

        Raises InvalidArgument.
        """

    def archive_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> None:
        """Close a finished stream: it can be read as before, and appending to it raises StreamArchived.

        Raises WrongExpectedVersion also for a stream without events. Raises StreamDeleted.
        """

    def unarchive_stream(self, stream: StreamName | str) -> None:
        """Let an archived stream take events again. Do nothing if it is not archived."""

    def is_archived(self, stream: StreamName | str) -> bool:
        """Say whether a stream is archived."""

    def delete_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> int:
        """Delete a stream for good: it has no events any more, and appending to it raises StreamDeleted.

        Return how many events it had, 0 if there were none or it was deleted before. Raises WrongExpectedVersion.
        """


@runtime_checkable
class TransactionalStore(Protocol):
    """A store in a database that others write to as well."""

    def within(self, connection: Any) -> Streams:
        """Return the store's streams as a caller's transaction sees and writes them."""
