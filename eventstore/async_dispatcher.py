"""The dispatcher of services on asyncio: the synchronous one in a greenlet, and middleware of either kind."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast
from uuid import UUID, uuid4

from eventstore.aggregates.aggregate import Aggregate
from eventstore.aggregates.dispatcher import ATTEMPTS, Accepted, Dispatcher, Middleware, Result, Send
from eventstore.backends.sql.async_store import AsyncSqlEventStore
from eventstore.backends.sql.greenlets import await_only, in_greenlet, waited_for
from eventstore.given_values import require_type
from eventstore.identifiers import checked_command_id
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

    Examples:
        >>> service = AsyncDispatcher(store)
        >>> result = await service.send("o1", Order.pay, amount=120)
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
        """Return a dispatcher whose commands carry a conversation, a cause and a trace."""
        require_type(metadata, Metadata, "metadata", takes="Metadata(…)")
        return replace(self, metadata=metadata)

    def once(self, command_id: UUID) -> AsyncDispatcher:
        """Return a dispatcher for one command that may be sent several times: its events are appended once.

        A repeated command gets the events of the first. A command that was refused, or that led to no event, is decided
        again.

        Raises:
            InvalidIdentifier: The id is no UUID.
            EventIdTaken: The id belongs to another command or another aggregate. Raised by `send`.
        """
        return replace(self, command_id=checked_command_id(command_id))

    def within(self, connection: AsyncConnection) -> AsyncDispatcher:
        """Return a dispatcher that loads and appends in the caller's transaction, with rows of ordinary tables.

        Nothing is stored until the caller commits. A lost race raises WrongExpectedVersion at once: in PostgreSQL the
        transaction can then only be rolled back. Aggregate snapshots are read and not taken.

        Args:
            connection: An open connection. SQLAlchemy raises its own error for a closed one.
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
        """Send a command, such as `Order.place` or a decider's function, with its arguments to one aggregate.

        Returns:
            Accepted with the events, or Refusal with the reason.

        Raises:
            WrongExpectedVersion: The command lost `attempts` races, or lost them for ten seconds.
            DeclarationError: The function is no command of an aggregate.
            EventIdTaken: The id of `once` belongs to another command.
            InvalidIdentifier: The id of the aggregate breaks the rules of names.
            InvalidEventData: A value does not fit its field.
        """
        return await self._run(lambda dispatcher: dispatcher.send(aggregate_id, command, *args, **kwargs))

    async def send_or_raise(
        self,
        aggregate_id: str,
        command: Callable[Concatenate[Any, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Accepted:
        """Send a command as `send` does, and raise Refused with the reason if the aggregate refuses it."""
        return await self._run(lambda dispatcher: dispatcher.send_or_raise(aggregate_id, command, *args, **kwargs))

    async def load(self, kind: type[A], aggregate_id: str) -> A:
        """Return an aggregate derived from its events. Its version is -1 if it has none."""
        return await self._run(lambda dispatcher: dispatcher.load(kind, aggregate_id))

    async def take_snapshot(self, kind: type[A], aggregate_id: str) -> A:
        """Take an aggregate snapshot now, whatever the interval is, and return the state it holds.

        Raises:
            StoreUnavailable: The database did not answer.
        """
        return await self._run(lambda dispatcher: dispatcher.take_snapshot(kind, aggregate_id))

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
