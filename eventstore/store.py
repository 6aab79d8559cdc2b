"""The port of every event store, with its errors in the signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from eventstore.identifiers import ExpectedVersion, Position, StreamName
from eventstore.messages import Metadata, RecordedEvent, require_metadata


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
