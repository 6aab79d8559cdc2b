"""The event store of services on asyncio: the synchronous one, run in greenlets of the loop.

The dispatcher of services on asyncio: the synchronous one in a greenlet, and middleware of either kind.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, cast

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from eventstore.aggregates.aggregate import Aggregate
from eventstore.aggregates.dispatcher import CommandOptions, Dispatcher, Middleware, Result, Send
from eventstore.backends.sql.engines import async_engine_for
from eventstore.backends.sql.greenlets import await_only, in_greenlet, in_thread, one_by_one, waited_for
from eventstore.backends.sql.reading import JoinedStreams
from eventstore.backends.sql.store import SqlEventStore, StoreOptions
from eventstore.erasure import KeyStore, MasterKeys
from eventstore.identifiers import ExpectedVersion, StreamName
from eventstore.schema_registry import SchemaRegistry
from eventstore.store import AppendResult, Command, Metadata, StreamAppend

P = ParamSpec("P")
R = TypeVar("R")


class _InThreads:
    """A registry or a key store that is asked in threads: its client blocks, and the loop has others to serve."""

    def __init__(self, asked: SchemaRegistry | KeyStore) -> None:
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._asked, name)
        return partial(in_thread, found) if callable(found) else found


def awaited(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return the method of a synchronous class for asyncio: it has the same arguments, and is awaited."""

    @wraps(method)
    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", await self._run(lambda streams: method(streams, *args, **kwargs)))

    return run


def iterated(method: Callable[Concatenate[Any, P], Iterator[R]]) -> Callable[Concatenate[Any, P], AsyncIterator[R]]:
    """Return the method of a synchronous class for asyncio: it has the same arguments, and is read by `async for`."""

    @wraps(method)
    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        async for one in one_by_one(await self._run(lambda streams: method(streams, *args, **kwargs))):
            yield one

    return run


class AsyncStreams:
    """The methods of `eventstore.store.Streams`, for asyncio."""

    append = awaited(JoinedStreams.append)
    append_batch = awaited(JoinedStreams.append_batch)
    read_stream = iterated(JoinedStreams.read_stream)
    find = awaited(JoinedStreams.find)
    head = awaited(JoinedStreams.head)
    commands_of = awaited(JoinedStreams.commands_of)


class AsyncJoinedStreams(AsyncStreams):
    """Does what JoinedStreams does, with its errors, and SQLAlchemy's own for a connection that is not open."""

    def __init__(self, store: SqlEventStore, connection: AsyncConnection) -> None:
        self._store, self._connection = store, connection

    async def _run(self, work: Callable[[JoinedStreams], R]) -> R:
        return await self._connection.run_sync(lambda theirs: work(self._store.within(theirs)))


class AsyncSqlEventStore(AsyncStreams):
    """An event store in PostgreSQL (`postgresql+psycopg://…`) or SQLite (`sqlite+aiosqlite:///shop.db`), for asyncio.

    Its methods take the arguments of those of SqlEventStore, and have their errors. `read_stream`, `read_all` and
    `archived_streams` are read by `async for`, and refuse wrong arguments at the first event. All others are awaited:
    `create_tables`, `register`, `declare_category`, `categories`, `schemas`, `schema`, `find`, `head`,
    `read_categories`, `commands_of`, `delete_stream`, `archive_stream`, `unarchive_stream`, `is_archived`, `erase`,
    `snapshot`, `save_snapshot`, `last_position`, `fence` and `backlog`.

    A cancelled call has no effect or its whole effect: an append of events with ids of their own (NewEvent) may be
    repeated. `sync_store` is the synchronous store, for `run_sync` and for Snapshots.

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

    def __init__(self, database: str | URL | AsyncEngine, **options: Unpack[StoreOptions]) -> None:
        self._owns_engine = not isinstance(database, AsyncEngine)
        self.engine = database if isinstance(database, AsyncEngine) else async_engine_for(database)
        if (registry := options.get("registry")) is not None:
            options["registry"] = cast("SchemaRegistry", _InThreads(registry))
        if (keys := options.get("keys")) is not None and not isinstance(keys, MasterKeys):
            options["keys"] = cast("KeyStore", _InThreads(keys))
        self.sync_store = SqlEventStore(self.engine.sync_engine, **options)

    async def run_sync(self, work: Callable[Concatenate[SqlEventStore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a synchronous function of the store. Other tasks work while it waits for the database."""
        return await in_greenlet(work, self.sync_store, *args, **kwargs)

    create_tables = awaited(SqlEventStore.create_tables)
    register = awaited(SqlEventStore.register)
    declare_category = awaited(SqlEventStore.declare_category)
    categories = awaited(SqlEventStore.categories)
    schemas = awaited(SqlEventStore.schemas)
    schema = awaited(SqlEventStore.schema)
    erase = awaited(SqlEventStore.erase)
    read_all = iterated(SqlEventStore.read_all)
    read_categories = awaited(SqlEventStore.read_categories)
    delete_stream = awaited(SqlEventStore.delete_stream)
    archive_stream = awaited(SqlEventStore.archive_stream)
    unarchive_stream = awaited(SqlEventStore.unarchive_stream)
    is_archived = awaited(SqlEventStore.is_archived)
    archived_streams = iterated(SqlEventStore.archived_streams)
    snapshot = awaited(SqlEventStore.snapshot)
    save_snapshot = awaited(SqlEventStore.save_snapshot)
    last_position = awaited(SqlEventStore.last_position)
    fence = awaited(SqlEventStore.fence)
    backlog = awaited(SqlEventStore.backlog)

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
        return (await self.append_batch([StreamAppend(stream, events, expected, metadata)], connection=connection))[0]

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
        if connection is not None:
            return await self.within(connection).append_batch(appends)
        return await self._run(lambda store: store.append_batch(appends))

    def within(self, connection: AsyncConnection) -> AsyncJoinedStreams:
        """Return the streams as the caller's transaction sees and writes them, as `AsyncDispatcher.within` does.

        Other readers see what is appended when the caller commits, together with the rows of that transaction.
        """
        return AsyncJoinedStreams(self.sync_store, connection)

    async def _run(self, work: Callable[[Any], R]) -> R:
        return await in_greenlet(work, self.sync_store)

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


A = TypeVar("A", bound=Aggregate)

AsyncSend = Callable[[Command], Awaitable[Result]]
AsyncMiddleware = Callable[[Command, AsyncSend], Awaitable[Result]]
"""What stands around every command, and may wait: it awaits what sends the command on."""


@dataclass(frozen=True)
class AsyncDispatcher(CommandOptions):
    """Sends commands to aggregates in one store, on an event loop. It otherwise works as Dispatcher, with its errors.

    Args:
        store: The store of the aggregates.
        middleware: Asynchronous and synchronous middleware, the outermost first. A synchronous one runs on the loop:
            other tasks go on while its command is carried out, but not while it waits for something itself.
        metadata: The conversation, cause and trace of all commands.
        attempts: How often a command is decided at most when it loses races.
        snapshots: Aggregate snapshots, made of `store.sync_store`.
        command_id: The id of the command. Use `once` instead.
        new_id: Makes the ids of commands.
        keep_commands: Store each command with the events that it led to, as Dispatcher does.

    Examples:
        >>> service = AsyncDispatcher(store)
        >>> result = await service.send("o1", Order.pay, amount=120)
    """

    store: AsyncSqlEventStore
    middleware: Sequence[Middleware | AsyncMiddleware] = field(default=(), kw_only=True)

    def within(self, connection: AsyncConnection) -> AsyncDispatcher:
        """Return a dispatcher that loads and appends in the caller's transaction, with rows of ordinary tables.

        Nothing is stored until the caller commits. A lost race raises WrongExpectedVersion at once: in PostgreSQL the
        transaction can then only be rolled back. Aggregate snapshots are read and not taken.

        Args:
            connection: An open connection. SQLAlchemy raises its own error for a closed one.
        """
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return _Joined(**own, connection=connection)

    send = awaited(Dispatcher.send)
    send_or_raise = awaited(Dispatcher.send_or_raise)
    load = awaited(Dispatcher.load)
    take_snapshot = awaited(Dispatcher.take_snapshot)

    async def _run(self, work: Callable[[Dispatcher], R]) -> R:
        return await in_greenlet(work, self._waiting)

    @cached_property
    def _waiting(self) -> Dispatcher:
        own = {one.name: getattr(self, one.name) for one in fields(Dispatcher)}
        middleware = [_waiting_for(one) for one in self.middleware]
        return _Waiting(**own | {"store": self.store.sync_store, "middleware": middleware})


@dataclass(frozen=True)
class _Joined(AsyncDispatcher):
    """A dispatcher in its caller's transaction."""

    connection: AsyncConnection = field(kw_only=True)

    async def _run(self, work: Callable[[Dispatcher], R]) -> R:
        return await self.connection.run_sync(lambda theirs: work(self._waiting.within(theirs)))


class _Waiting(Dispatcher):
    """A dispatcher for greenlets: its pauses before another attempt are the loop's."""

    def _retries(self) -> Iterator[Any]:
        return waited_for(super()._retries())


def _waiting_for(middleware: Middleware | AsyncMiddleware) -> Middleware:
    """Let a greenlet wait for asynchronous middleware, and that for what the greenlet goes on with."""
    if not (inspect.iscoroutinefunction(middleware) or inspect.iscoroutinefunction(type(middleware).__call__)):
        return cast("Middleware", middleware)
    awaited = cast("AsyncMiddleware", middleware)

    def waiting(message: Command, send: Send) -> Result:
        return await_only(awaited(message, lambda changed: in_greenlet(send, changed)))

    return waiting
