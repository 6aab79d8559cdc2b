"""Synchronous code on an event loop: it runs in a greenlet, and where it would wait, the loop goes on.

This is SQLAlchemy's own bridge, by which its asyncio engines run its synchronous code: `await_only` hands something to
await to the coroutine that runs the greenlet, and gives its result back. What is written for threads once is so the
code for tasks as well; see ADR 0025.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, ExceptionContext, StaticPool, event
from sqlalchemy.util import await_only as await_only
from sqlalchemy.util import greenlet_spawn as greenlet_spawn

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

P = ParamSpec("P")
T = TypeVar("T")

# Decoding takes some 10 µs an event: other tasks wait for a millisecond.
TURN: Final = 100
# A database answers within milliseconds. A cancelled caller does not wait for one that hangs.
_GRACE_SECONDS: Final = 1.0
_WORK: ContextVar[_Work | None] = ContextVar("_WORK", default=None)


class _Work:
    """Whether work is at a connection, where a cancellation waits for it, and whether one does."""

    __slots__ = ("cancelled", "uses")

    def __init__(self) -> None:
        self.uses = 0
        self.cancelled = False

    async def run(self, work: Callable[[], T]) -> T:
        _WORK.set(self)
        return await greenlet_spawn(work)

    async def cancel(self, task: asyncio.Task[Any]) -> None:
        self.cancelled = True
        try:
            if self.uses:
                await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        finally:
            task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # seen: nothing awaits it any more


async def in_greenlet(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run synchronous work that waits by `await_only`, as everything does on an asyncio engine's `sync_engine`.

    A cancellation ends it where it waits; where it is `undisturbed`, after that, or after a second.
    """
    own = _Work()
    task = asyncio.create_task(own.run(lambda: work(*args, **kwargs)))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await own.cancel(task)
        raise


@contextmanager
def undisturbed() -> Iterator[None]:
    """Use a connection, and give it back, before a cancellation ends the work.

    A statement that is cancelled costs its connection (SQLAlchemy), and on SQLite its lock may stay for as long as the
    exception exists (Python 3.11 closes a connection only with its last cursor).
    """
    work = _WORK.get()
    if work is None:
        yield
        return
    work.uses += 1
    try:
        yield
    finally:
        work.uses -= 1
        if work.cancelled:
            raise asyncio.CancelledError


def release_when_cut_off(engine: Engine) -> None:
    """Let a statement that was cancelled free its locks at once, where its connection is one of aiosqlite.

    SQLite keeps a closed connection, and its locks, until its last cursor is closed. The exception may hold the cursor
    for long. A rollback is not enough: a statement with more rows to return (a query, a change that returns rows) reads
    on in its snapshot until its cursor is closed.
    """
    if engine.driver == "aiosqlite" and not event.contains(engine, "handle_error", _end_statement):
        event.listen(engine, "handle_error", _end_statement)
        event.listen(engine, "invalidate", _roll_back)


def _end_statement(error: ExceptionContext) -> None:
    # SQLAlchemy 2.1 names a cursor in its context of errors, and leaves it unset.
    statement = error.execution_context
    if statement is not None and isinstance(error.original_exception, asyncio.CancelledError):
        with suppress(asyncio.CancelledError):  # another, while the first is on its way: it is being closed
            statement.cursor.close()


def _roll_back(connection: Any, record: object, cause: BaseException | None) -> None:
    if isinstance(cause, asyncio.CancelledError):
        with suppress(asyncio.CancelledError):
            connection.rollback()


def asynchronous(tx: Connection, engine: AsyncEngine) -> AsyncConnection:
    """Return a connection of an asyncio engine, opened in a greenlet, for coroutines."""
    from sqlalchemy.ext.asyncio import AsyncConnection

    return AsyncConnection(engine, tx)


async def leave_loop(engine: AsyncEngine) -> None:
    """Close the connections of a loop that ends; one that is a database in memory stays."""
    if not isinstance(engine.pool, StaticPool):
        await engine.dispose()


def sleep(seconds: float) -> None:
    """Let other tasks work for so long, 0 for a turn."""
    await_only(asyncio.sleep(seconds))


def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Let a thread do, in a greenlet, what waits for something else than the database; the loop goes on."""
    done: T = await_only(asyncio.to_thread(work, *args, **kwargs))
    return done


def waited_for(steps: AsyncIterable[T]) -> Iterator[T]:
    """Iterate, in a greenlet, over what comes asynchronously."""
    iterator = aiter(steps)
    while True:
        try:
            step = await_only(anext(iterator))
        except StopAsyncIteration:
            return
        yield step


async def one_by_one(items: Iterator[T]) -> AsyncIterator[T]:
    """Yield what synchronous code reads, so much in each greenlet as it may keep the loop from others."""
    while part := await in_greenlet(lambda: list(islice(items, TURN))):
        for one in part:
            yield one
