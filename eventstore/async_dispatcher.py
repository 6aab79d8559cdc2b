"""The dispatcher of services on asyncio: the synchronous one in a greenlet, and middleware of either kind."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast
from uuid import UUID, uuid4

from eventstore.aggregate import Aggregate
from eventstore.backends.sql.async_store import AsyncSqlEventStore
from eventstore.backends.sql.greenlets import await_only, in_greenlet, waited_for
from eventstore.dispatcher import ATTEMPTS, Accepted, Dispatcher, Middleware, Result, Send
from eventstore.messages import NO_METADATA, Command, Metadata
from eventstore.snapshots import Snapshots

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound=Aggregate)

AsyncSend = Callable[[Command], Awaitable[Result]]
AsyncMiddleware = Callable[[Command, AsyncSend], Awaitable[Result]]
"""What stands around every command, and may wait: it awaits what sends the command on."""


@dataclass(frozen=True)
class AsyncDispatcher:
    """Sends commands to aggregates in one store, on an event loop. Otherwise as Dispatcher, with its errors.

    ``middleware`` may be asynchronous, synchronous, or some of each: a synchronous one runs on the loop, which goes on
    while the command it sends is carried out, but not while it waits for something itself. ``snapshots`` is made of
    ``store.sync_store``.
    """

    store: AsyncSqlEventStore
    _: KW_ONLY
    middleware: Sequence[Middleware | AsyncMiddleware] = ()
    metadata: Metadata = NO_METADATA
    attempts: int = ATTEMPTS
    snapshots: Snapshots | None = None
    command_id: UUID | None = None
    new_id: Callable[[], UUID] = uuid4

    def with_metadata(self, metadata: Metadata) -> AsyncDispatcher:
        """Return a dispatcher whose commands belong to a conversation, a cause, a trace."""
        return replace(self, metadata=metadata)

    def once(self, command_id: UUID) -> AsyncDispatcher:
        """Return a dispatcher for one command that may be sent again, by whomever: its events are appended once.

        A repetition gets the events of the first. A command that was refused, or that led to no event, left nothing
        behind: it is decided again. Raises CommandIdTaken if the id was another command's, or another aggregate's.
        """
        return replace(self, command_id=command_id)

    def within(self, connection: AsyncConnection) -> AsyncDispatcher:
        """Return a dispatcher that loads and appends in the caller's transaction, with rows of ordinary tables.

        Nothing is stored until the caller commits. A lost race is WrongExpectedVersion at once: what to do then is the
        caller's to decide, and PostgreSQL lets the transaction only be rolled back. Aggregate snapshots are used, and
        not taken. SQLAlchemy's own error for a connection that is not open.
        """
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return _Joined(**own, connection=connection)

    async def send(
        self,
        aggregate_id: str,
        command: Callable[Concatenate[Any, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Result:
        """Send `Order.place`, or a decider's function, with its arguments to one aggregate.

        Raises WrongExpectedVersion only after ``attempts`` lost races, or ten seconds of them. Raises
        InvalidIdentifier, InvalidEventData, UnknownAggregate, CommandIdTaken, and the store's own errors.
        """
        return await self._run(lambda dispatcher: dispatcher.send(aggregate_id, command, *args, **kwargs))

    async def send_or_raise(
        self,
        aggregate_id: str,
        command: Callable[Concatenate[Any, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Accepted:
        """Do as `send`, and raise Refused with the reason instead of returning a refusal."""
        return await self._run(lambda dispatcher: dispatcher.send_or_raise(aggregate_id, command, *args, **kwargs))

    async def load(self, kind: type[A], aggregate_id: str) -> A:
        """Return an aggregate as its events made it. Version -1 where it has none."""
        return await self._run(lambda dispatcher: dispatcher.load(kind, aggregate_id))

    async def take_snapshot(self, kind: type[A], aggregate_id: str) -> A:
        """Take an aggregate snapshot now, whatever the interval is, and return the state it holds.

        Raises StoreUnavailable.
        """
        return await self._run(lambda dispatcher: dispatcher.take_snapshot(kind, aggregate_id))

    async def _run(self, work: Callable[[Dispatcher], R]) -> R:
        return await in_greenlet(work, self._waiting)

    @cached_property
    def _waiting(self) -> Dispatcher:
        return _Waiting(
            self.store.sync_store,
            middleware=[_waiting_for(one) for one in self.middleware],
            metadata=self.metadata,
            attempts=self.attempts,
            snapshots=self.snapshots,
            command_id=self.command_id,
            new_id=self.new_id,
        )


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
