"""The event store of services on asyncio: the synchronous one, run in greenlets of the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Self, TypeVar
from uuid import UUID

from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from eventstore.backends.sql.async_joining import AsyncJoinedStreams
from eventstore.backends.sql.engines import async_engine_for
from eventstore.backends.sql.greenlets import in_greenlet, in_thread, one_by_one
from eventstore.backends.sql.store import SqlEventStore
from eventstore.erasure import MasterKeys
from eventstore.identifiers import ExpectedVersion, Position, StreamName
from eventstore.messages import Metadata, RecordedEvent
from eventstore.schema_registry import RegisteredSchema, SchemaRegistry
from eventstore.snapshots import AggregateSnapshot
from eventstore.store import AppendResult, Category, FenceStatus, StreamAppend
from eventstore.topics import DEFAULT_SOURCE

if TYPE_CHECKING:
    from eventstore.aggregates.aggregate import Aggregate
    from eventstore.erasure import DataKey, Erasure, KeyStore

P = ParamSpec("P")
R = TypeVar("R")

_NOW: Final = partial(datetime.now, UTC)


class _RegistryInThreads:
    """A schema registry that is asked in a thread: its client blocks, and the loop has others to serve."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self.address = registry.address

    def register(self, schemas: Sequence[RegisteredSchema]) -> list[RegisteredSchema]:
        return in_thread(self._registry.register, schemas)

    def schema(self, schema_id: int) -> RegisteredSchema:
        return in_thread(self._registry.schema, schema_id)


class _KeysInThreads:
    """A key store of one's own, asked in a thread for the same reason."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        return in_thread(self._keys.keys_for, subjects)

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        return in_thread(self._keys.keys, ids)

    def erase(self, subject: str) -> int:
        return in_thread(self._keys.erase, subject)

    def rotate(self) -> int:
        return in_thread(self._keys.rotate)


class AsyncSqlEventStore:
    """An event store in PostgreSQL (`postgresql+psycopg://…`) or SQLite (`sqlite+aiosqlite:///shop.db`), for asyncio.

    Every method does what that of SqlEventStore does, with its errors. A cancelled call has no effect or its whole
    effect: an append of events with ids of their own (NewEvent) may be repeated. `sync_store` is the synchronous store,
    for `run_sync` and for Snapshots.

    Args:
        database: A URL, or an engine. The caller disposes of an engine.
        schema: A database schema (PostgreSQL).
        source: The CloudEvents source of all events, which names the service.
        topic_prefix: The prefix of new topics, instead of one from `source`.
        registry: Checks the schemas of new event types and gives their ids. Without one, ids are fingerprints.
        clock: Gives the time of events.
        new_id: Makes the ids of events that come without one, by default UUIDs of version 7.
        keys: Master keys for data keys in this store, or a key store, which is called in a thread.

    Examples:
        >>> async with AsyncSqlEventStore("sqlite+aiosqlite:///shop.db") as store:
        ...     await store.create_tables()
        ...     result = await AsyncDispatcher(store).send("o1", Order.pay, amount=120)
    """

    def __init__(
        self,
        database: str | URL | AsyncEngine,
        *,
        schema: str | None = None,
        source: str = DEFAULT_SOURCE,
        topic_prefix: str | None = None,
        registry: SchemaRegistry | None = None,
        clock: Callable[[], datetime] = _NOW,
        new_id: Callable[[], UUID] | None = None,
        keys: KeyStore | MasterKeys | None = None,
    ) -> None:
        self._owns_engine = not isinstance(database, AsyncEngine)
        self.engine = database if isinstance(database, AsyncEngine) else async_engine_for(database)
        self.sync_store = SqlEventStore(
            self.engine.sync_engine,
            schema=schema,
            source=source,
            topic_prefix=topic_prefix,
            registry=None if registry is None else _RegistryInThreads(registry),
            clock=clock,
            new_id=new_id,
            keys=keys if keys is None or isinstance(keys, MasterKeys) else _KeysInThreads(keys),
        )

    async def run_sync(self, work: Callable[Concatenate[SqlEventStore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a synchronous function of the store. Other tasks work while it waits for the database."""
        return await in_greenlet(work, self.sync_store, *args, **kwargs)

    async def create_tables(self) -> None:
        """Create what is missing, or bring an older store up to date. Raises StoreNewer or StoreNotPrepared."""
        await in_greenlet(self.sync_store.create_tables)

    async def register(self, *aggregates: type[Aggregate]) -> None:
        """Store the categories and schemas of aggregates before their first event."""
        await in_greenlet(self.sync_store.register, *aggregates)

    async def declare_category(self, name: str, *, partitions: int, topic: str | None = None) -> Category:
        """Create a category with a partition count of its own. Raises PartitionsFixed if it has another."""
        return await in_greenlet(self.sync_store.declare_category, name, partitions=partitions, topic=topic)

    async def categories(self) -> list[Category]:
        """Return every category, by name."""
        return await in_greenlet(self.sync_store.categories)

    async def schemas(self) -> list[RegisteredSchema]:
        """Return every registered schema, by id."""
        return await in_greenlet(self.sync_store.schemas)

    async def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema. Raises UnknownSchema."""
        return await in_greenlet(self.sync_store.schema, schema_id)

    async def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
        connection: AsyncConnection | None = None,
    ) -> AppendResult:
        """Append to one stream. Raises the errors of `append_batch`."""
        appends = [StreamAppend(stream, events, expected, metadata)]
        return (await self.append_batch(appends, connection=connection))[0]

    async def append_batch(
        self, appends: Sequence[StreamAppend], *, connection: AsyncConnection | None = None
    ) -> list[AppendResult]:
        """Append to many streams, all or none, in one statement. Results have the order of the appends.

        Args:
            appends: The appends, one for each stream.
            connection: Append in the caller's transaction, which commits the events. SQLAlchemy raises its own error
                for a closed connection.

        Raises:
            FactfoldError: The errors of `SqlEventStore.append_batch`.
        """
        if connection is None:
            return await in_greenlet(self.sync_store.append_batch, appends)

        def within(theirs: Connection) -> list[AppendResult]:
            return self.sync_store.append_batch(appends, connection=theirs)

        return await connection.run_sync(within)

    def within(self, connection: AsyncConnection) -> AsyncJoinedStreams:
        """Return the streams as the caller's transaction sees and writes them, as `AsyncDispatcher.within` does.

        Other readers see what is appended when the caller commits, together with the rows of that transaction.
        """
        return AsyncJoinedStreams(self.sync_store, connection)

    async def erase(self, subject: str) -> Erasure:
        """Destroy the keys of a subject: every event about it shows placeholders from now on, wherever it was copied.

        Aggregate snapshots of its streams are dropped. Safe to call again. Raises StoreUnavailable.
        """
        return await in_greenlet(self.sync_store.erase, subject)

    def read_stream(
        self,
        stream: StreamName | str,
        *,
        from_version: int = 0,
        to_version: int | None = None,
        until: datetime | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[RecordedEvent]:
        """Yield one stream's events by version, both bounds included. Nothing for an unknown stream.

        ``until`` ends before the first event recorded after a moment, ``backwards`` begins at the highest version, and
        ``limit`` counts from where reading begins. Raises InvalidEventData for a moment without a time zone.
        """
        return one_by_one(
            self.sync_store.read_stream(
                stream,
                from_version=from_version,
                to_version=to_version,
                until=until,
                backwards=backwards,
                limit=limit,
            )
        )

    def read_all(
        self, *, after: Position | None = None, category: str | None = None, limit: int | None = None
    ) -> AsyncIterator[RecordedEvent]:
        """Yield events in store order behind the fence: none is skipped, no stream out of order.

        `after` is the position of the last event seen: a reader's checkpoint.
        """
        return one_by_one(self.sync_store.read_all(after=after, category=category, limit=limit))

    async def read_categories(self, after: Mapping[str, Position | None], *, limit: int) -> list[RecordedEvent]:
        """Return events of some categories in store order behind the fence, of each those after its own place."""
        return await in_greenlet(self.sync_store.read_categories, after, limit=limit)

    async def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        return await in_greenlet(self.sync_store.find, event_id)

    async def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""
        return await in_greenlet(self.sync_store.head, stream)

    async def delete_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> int:
        """Delete a stream for good. Returns how many events it had, 0 where there is none or it was deleted before.

        No more events can be appended to it (StreamDeleted). Raises WrongExpectedVersion, StoreUnavailable or
        StoreNotPrepared.
        """
        return await in_greenlet(self.sync_store.delete_stream, stream, expected=expected)

    async def archive_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> None:
        """Close a finished stream: it is read as ever, and no event can be appended to it (StreamArchived).

        Its aggregate snapshot goes. Raises WrongExpectedVersion, also for a stream without events. Raises
        StreamDeleted.
        """
        await in_greenlet(self.sync_store.archive_stream, stream, expected=expected)

    async def unarchive_stream(self, stream: StreamName | str) -> None:
        """Let an archived stream take events again. Nothing for one that is not archived."""
        await in_greenlet(self.sync_store.unarchive_stream, stream)

    async def is_archived(self, stream: StreamName | str) -> bool:
        """Say whether a stream is archived."""
        return await in_greenlet(self.sync_store.is_archived, stream)

    def archived_streams(self, category: str | None = None) -> AsyncIterator[str]:
        """Yield the names of archived streams, all or a category's, in their order."""
        return one_by_one(self.sync_store.archived_streams(category))

    async def snapshot(self, stream: str) -> AggregateSnapshot | None:
        """Return a stream's aggregate snapshot, None without one."""
        return await in_greenlet(self.sync_store.snapshot, stream)

    async def keep_snapshot(self, snapshot: AggregateSnapshot) -> None:
        """Store an aggregate snapshot, unless a newer one of the same shape exists."""
        await in_greenlet(self.sync_store.keep_snapshot, snapshot)

    async def last_position(self, category: str, *, before: datetime | None = None) -> Position | None:
        """Return the position of a category's last event behind the fence, or of the last one before a moment."""
        return await in_greenlet(self.sync_store.last_position, category, before=before)

    async def fence(self) -> FenceStatus:
        """Return how long readers have waited, and for which session. Raises StoreUnavailable or StoreNotPrepared."""
        return await in_greenlet(self.sync_store.fence)

    async def waiting(self, after: Position | None, *, category: str) -> tuple[int, datetime | None]:
        """Return how many events of a category come after a position, and the time of the first of them."""
        return await in_greenlet(self.sync_store.waiting, after, category=category)

    async def close(self) -> None:
        """Close the connections that the store opened itself."""
        if self._owns_engine:
            await self.engine.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
