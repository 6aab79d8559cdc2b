"""The streams of a store as a caller's transaction sees and writes them: what it reads and appends commits with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from eventstore.backends.batch import check_bounds, stream_name
from eventstore.backends.sql.reading import Part, Reader
from eventstore.fields.conversions import aware_utc
from eventstore.identifiers import NO_VERSION, ExpectedVersion, StreamName
from eventstore.messages import Metadata, RecordedEvent
from eventstore.store import AppendResult, StreamAppend


class JoinedStreams:
    """Streams of a store in the transaction of a connection, which is its owner's to end."""

    def __init__(self, append: Callable[..., list[AppendResult]], reader: Reader, connection: Connection) -> None:
        self._append, self._reader, self._connection = append, reader, connection

    def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
    ) -> AppendResult:
        """Append to one stream; the errors of `SqlEventStore.append_batch`."""
        return self.append_batch([StreamAppend(stream, events, expected, metadata)])[0]

    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, as `SqlEventStore.append_batch` does with a connection."""
        return self._append(appends, connection=self._connection)

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
        """Yield one stream's events by version, as `EventStore.read_stream` says; with those of this transaction."""
        check_bounds(from_version=from_version, to_version=to_version, limit=limit)
        part = Part(str(stream_name(stream)), from_version, to_version, None if until is None else aware_utc(until))
        return self._reader.stream(part, backwards=backwards, limit=limit)

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        return self._reader.find(event_id)

    def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""
        head = self._reader.head(str(stream_name(stream)))
        return None if head <= NO_VERSION else head


class BatchedStreams(JoinedStreams):
    """The same, with reads of many events at once."""

    def at(self, places: Sequence[tuple[str, int]]) -> list[RecordedEvent]:
        """Return the events of these streams and versions, as far as they are there."""
        return self._reader.at(places)
