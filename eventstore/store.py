"""The port of every event store, with its errors in the signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from eventstore.identifiers import ExpectedVersion, Position, StreamName
from eventstore.messages import Metadata, RecordedEvent


@dataclass(frozen=True, slots=True)
class StreamAppend:
    """Events for one stream, under one expectation. `events` are event objects or NewEvent."""

    stream: StreamName | str
    events: Sequence[object]
    expected: ExpectedVersion
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What one stream's events were recorded as, in their order. `schema_ids` are those they are framed by.

    `repeated` says that they were there already: this is the result of the first append.
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
    """A category's topic. `partitions` is fixed for life, `generation` counts its republished topics."""

    name: str
    topic: str
    partitions: int
    generation: int


@dataclass(frozen=True, slots=True)
class FenceStatus:
    """What readers of the store do not see yet: `waiting` events that are committed, and why.

    `age` is for how many seconds the oldest transaction that writes has been open, 0.0 without one, and `holder` says
    whose it is, None without one. Where this user may not know the age, that is None too.
    """

    waiting: int
    age: float | None
    holder: str | None


@dataclass(frozen=True, slots=True)
class StoreVersion:
    """The number of the last migration of a store's tables, None without one, and of the newest of this release."""

    found: str | None
    newest: str

    @property
    def is_current(self) -> bool:
        """Whether the tables are what this release wants."""
        return self.found == self.newest


class Streams(Protocol):
    """Streams of events, appended under an expected version and read in order: all that a dispatcher needs."""

    def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
    ) -> AppendResult:
        """Append to one stream.

        Raises WrongExpectedVersion, StreamDeleted, StreamArchived, InvalidAppend, InvalidEventData or EventIdTaken.
        Raises SchemaIncompatible if an event's class is new here, and could not read what was appended under its type
        name. Where every event comes with an id of its own (NewEvent), a repetition gets the result of the first
        append.
        """

    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, all or none. Raises the errors of `append`."""

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
        """Yield one stream's events by version, both bounds included. Nothing for an unknown stream.

        ``until`` ends before the first event recorded after a moment: later ones stay out even where a clock went
        backwards, so that what is read can be folded. ``backwards`` begins at the highest version, and ``limit``
        counts from where reading begins. Raises InvalidEventData for a moment without a time zone, InvalidBound for a
        version or limit below zero.
        """

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""

    def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""


class EventStore(Streams, Protocol):
    """Streams of events, the order of them all, and what becomes of finished ones."""

    def read_all(
        self, *, after: Position | None = None, category: str | None = None, limit: int | None = None
    ) -> Iterator[RecordedEvent]:
        """Yield events in store order behind the fence: none is skipped, no stream out of order.

        Raises InvalidBound.
        """

    def archive_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> None:
        """Close a finished stream: it is read as ever, and appending to it is StreamArchived.

        Raises WrongExpectedVersion, also for a stream without events. Raises StreamDeleted.
        """

    def unarchive_stream(self, stream: StreamName | str) -> None:
        """Let an archived stream take events again. Nothing for one that is not archived."""

    def is_archived(self, stream: StreamName | str) -> bool:
        """Say whether a stream is archived."""

    def delete_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> int:
        """Delete a stream for good: it reads as nothing, and appending to it is StreamDeleted.

        Returns how many events it had, 0 where there is none or it was deleted before. Raises WrongExpectedVersion.
        """


@runtime_checkable
class TransactionalStore(Protocol):
    """A store in a database that others write to as well."""

    def within(self, connection: Any) -> Streams:
        """Return the store's streams as a caller's transaction sees and writes them."""
