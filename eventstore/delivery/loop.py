"""Where coroutine handlers run: the event loop, each batch a task of it, whose synchronous code awaits the handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar

from eventstore.backends.sql.greenlets import asynchronous, await_only, greenlet_spawn, sleep
from eventstore.errors import SubscriptionError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")

# How soon a stop is seen in the pause before another attempt.
_GLANCE_SECONDS: Final = 0.05
# How long other tasks wait for handlers that wait for nothing.
_TURN_SECONDS: Final = 0.005
# A handler that is cancelled gives its connection back at once, or not at all.
_GRACE_SECONDS: Final = 1.0


class HandlerLoop:
    """Runs jobs on an event loop, for a subscriber in a thread of its own."""

    awaits: Final = True

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: AsyncEngine | None) -> None:
        self._loop = loop
        self._engine = engine
        self._task: asyncio.Task[Any] | None = None
        self._turn_ends = 0.0
        self._cancelled = False

    def start(self, job: Callable[[], T]) -> Future[T]:
        """Run a job in a task, and return where its end will be known."""
        return asyncio.run_coroutine_threadsafe(self._run(job), self._loop)

    async def _run(self, job: Callable[[], T]) -> T:
        self._task = asyncio.current_task()
        if self._cancelled:
            raise asyncio.CancelledError
        return await greenlet_spawn(job)

    def called(self, handler: Callable[..., Any]) -> Callable[..., object]:
        """Return a function that awaits a handler, and lets other tasks have their turn now and then."""

        def call(**given: Any) -> None:
            if self._cancelled:  # and another error took the place of the cancellation
                raise asyncio.CancelledError
            await_only(_outcome(handler(**given)))
            if time.monotonic() > self._turn_ends:
                sleep(0)
                self._turn_ends = time.monotonic() + _TURN_SECONDS

        return call

    def lent(self, tx: Connection) -> AsyncConnection:
        """Return the transaction for coroutines."""
        assert self._engine is not None  # noqa: S101  # it is what the transaction was begun on
        return asynchronous(tx, self._engine)

    def wait(self, halt: Event, seconds: float) -> bool:
        """Let others work until it is to halt, or so many seconds are over."""
        until = time.monotonic() + seconds
        while not halt.is_set() and (left := until - time.monotonic()) > 0:
            sleep(min(left, _GLANCE_SECONDS))
        return halt.is_set()

    def aside(self, work: Callable[[], None]) -> None:
        """Do it in another thread: a dead letter waits for a broker."""
        await_only(asyncio.to_thread(work))

    def give_up(self, job: Future[Any], sever: Callable[[], None]) -> None:
        """Cancel the handler; cut its connection where it does not go, as when it waits without awaiting."""
        self.cancel()
        if not wait([job], _GRACE_SECONDS).done:
            sever()

    def cancel(self) -> None:
        """Cancel the job at hand, and begin no other; may be called from any thread."""
        self._cancelled = True
        task = self._task
        if task is not None:
            with suppress(RuntimeError):  # the loop is closed, and its tasks have ended
                self._loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Nothing: the loop is the caller's."""


async def _outcome(call: Awaitable[object]) -> None:
    """Await a handler; what was cancelled within it is a failure of its own, and not the end of the subscription."""
    try:
        await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise SubscriptionError(
            "the handler waited for something that was cancelled",
            remedy="catch asyncio.CancelledError where it waits for tasks of its own",
        ) from error
