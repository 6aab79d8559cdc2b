"""The streams of a store in the transaction of an asyncio connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from eventstore.backends.sql.greenlets import one_by_one
from eventstore.backends.sql.joining import JoinedStreams
from eventstore.backends.sql.store import SqlEventStore
from eventstore.identifiers import ExpectedVersion, StreamName
from eventstore.messages import Metadata, RecordedEvent
from eventstore.store import AppendResult, StreamAppend

R = TypeVar("R")


class AsyncJoinedStreams:
    """Does what JoinedStreams does, with its errors; SQLAlchemy's own for a connection that is not open."""

    def __init__(self, store: SqlEventStore, connection: AsyncConnection) -> None:
        self._store, self._connection = store, connection

    async def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
    ) -> AppendResult:
        """Append to one stream; the errors of `AsyncSqlEventStore.append_batch`."""
        return (await self.append_batch([StreamAppend(stream, events, expected, metadata)]))[0]

    async def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, as `AsyncSqlEventStore.append_batch` does with a connection."""
        return await self._run(lambda streams: streams.append_batch(appends))

    async def read_stream(
        self,
        stream: StreamName | str,
        *,
        from_version: int = 0,
        to_version: int | None = None,
        until: datetime | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[RecordedEvent]:
        """Yield one stream's events by version, as `EventStore.read_stream` says; with those of this transaction."""
        events = await self._run(
            lambda streams: streams.read_stream(
                stream,
                from_version=from_version,
                to_version=to_version,
                until=until,
                backwards=backwards,
                limit=limit,
            )
        )
        async for recorded in one_by_one(events):
            yield recorded

    async def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        return await self._run(lambda streams: streams.find(event_id))

    async def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""
        return await self._run(lambda streams: streams.head(stream))

    async def _run(self, work: Callable[[JoinedStreams], R]) -> R:
        return await self._connection.run_sync(lambda theirs: work(self._store.within(theirs)))
