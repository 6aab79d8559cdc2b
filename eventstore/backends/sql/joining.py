"""The streams of a store as a caller's transaction sees and writes them: what it reads and appends commits with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from sqlalchemy import Connection

from eventstore.backends.batch import stream_name
from eventstore.backends.sql.reading import Reader
from eventstore.backends.streams import Part, StoredStreams
from eventstore.given_values import require_type
from eventstore.identifiers import NO_VERSION, StreamName
from eventstore.messages import RecordedEvent
from eventstore.store import AppendResult, StreamAppend


class SqlStreams(StoredStreams):
    """Streams that a reader of the database reads."""

    _reader: Reader

    def _part(self, part: Part) -> Iterator[RecordedEvent]:
        return self._reader.stream(part)

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        require_type(event_id, UUID, "event_id", takes="a UUID")
        return self._reader.find(event_id)

    def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""
        head = self._reader.head(str(stream_name(stream)))
        return None if head <= NO_VERSION else head


class JoinedStreams(SqlStreams):
    """Streams of a store in the transaction of a connection, which its owner ends."""

    def __init__(self, append: Callable[..., list[AppendResult]], reader: Reader, connection: Connection) -> None:
        self._append, self._reader, self._connection = append, reader, connection

    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, as `SqlEventStore.append_batch` does with a connection."""
        return self._append(appends, connection=self._connection)

    def at(self, places: Sequence[tuple[str, int]]) -> list[RecordedEvent]:
        """Return the events of these streams and versions, as far as they are there."""
        return self._reader.at(places)
