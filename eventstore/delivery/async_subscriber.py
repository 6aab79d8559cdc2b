"""A subscriber for coroutine handlers: the same one in a thread, with the event loop in place of its handler's.

On the loop each batch is a task, whose synchronous code awaits the handler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from eventstore.backends.sql.greenlets import asynchronous, await_only, greenlet_spawn, sleep
from eventstore.delivery.attempt import DeliveryReport
from eventstore.delivery.calls import Around, HandlerThread
from eventstore.delivery.source import Lag, Source
from eventstore.delivery.subscriber import Subscriber
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import SubscriptionError
from eventstore.restarts import PATIENCE_SECONDS

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


_POLL_SECONDS: Final = 0.5


class AsyncSubscriber:
    """Delivers what a source gives to a subscription's coroutine handler. Use it in `async with`.

    It has the guarantees and errors of Subscriber. A thread reads the source, which is a synchronous one.

    Args:
        subscription: The subscription.
        source: Where records come from.
        engine: The database that the handler writes to. A handler that takes `tx: AsyncConnection` needs it.
        patience: How long to wait for a database that does not answer, in seconds.
        around: Context managers that are opened around each call of the handler, such as a span.

    Examples:
        >>> async with AsyncSubscriber(pack, StoreSource(store, pack, category="order"), engine=engine) as subscriber:
        ...     await subscriber.run(stop=stop)
    """

    def __init__(
        self,
        subscription: Subscription[..., Any],
        source: Source[Any],
        *,
        engine: AsyncEngine | None = None,
        patience: float = PATIENCE_SECONDS,
        around: Sequence[Around] = (),
    ) -> None:
        self._subscription = subscription
        self._source = source
        self._engine = engine
        self._patience = patience
        self._around = around
        self._thread = HandlerThread(f"consumer of {subscription.group}")
        self._stop = Event()
        self._subscriber: Subscriber | None = None

    @property
    def report(self) -> DeliveryReport:
        """What became of all records so far."""
        return self._opened().report

    async def run(
        self, *, stop: asyncio.Event | None = None, on_batch: Callable[[DeliveryReport], None] | None = None
    ) -> DeliveryReport:
        """Deliver until `stop` is set. The current handler call is finished, and its batch up to there is committed.

        Cancelling it cancels the current handler call and rolls its batch back. This subscriber then delivers no more.
        Records that were not acknowledged arrive again, however the run ended.

        Raises:
            FactfoldError: The errors of `Subscriber.run`.
        """
        self._stop = Event()
        opened, tell = self._opened(), None if on_batch is None else _on_loop(on_batch)
        watching = None if stop is None else asyncio.create_task(_passed_on(stop, self._stop))
        try:
            return await self._in_thread(lambda: opened.run(stop=self._stop, on_batch=tell))
        finally:
            if watching is not None:
                watching.cancel()

    async def run_once(self, *, timeout: float = _POLL_SECONDS) -> DeliveryReport:
        """Deliver the next batch, if one arrives within `timeout` seconds. Raises the errors of `run`."""
        opened = self._opened()
        return await self._in_thread(lambda: opened.run_once(timeout=timeout))

    def pause(self) -> None:
        """Deliver nothing more after the handler call at hand, and stay a member of the group."""
        self._opened().pause()

    def resume(self) -> None:
        """Go on after `pause`, with the record that comes next."""
        self._opened().resume()

    async def lag(self) -> Lag:
        """Return how far the group is behind."""
        return await asyncio.to_thread(self._source.lag)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._runners = [HandlerLoop(loop, self._engine) for _ in range(self._subscription.parallel)]
        try:
            await self._in_thread(self._open)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    def _open(self) -> None:
        self._subscriber = Subscriber(
            self._subscription,
            self._source,
            engine=None if self._engine is None else self._engine.sync_engine,
            patience=self._patience,
            runners=self._runners,
            around=self._around,
        )

    def _opened(self) -> Subscriber:
        if self._subscriber is None:
            raise SubscriptionError(
                f"the subscriber of {self._subscription.group!r} is not open",
                remedy="use it inside of `async with`",
                place=self._subscription.name,
            )
        return self._subscriber

    async def _close(self) -> None:
        """End a batch that is still at hand, and leave the group at once."""
        try:
            if self._subscriber is not None:
                await self._in_thread(self._subscriber.close)
        finally:
            self._thread.close()

    async def _in_thread(self, job: Callable[[], T]) -> T:
        """Let the consumer's thread do it; a cancellation cancels the handler, and is raised when all is over."""
        done = asyncio.wrap_future(self._thread.start(job))
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._stop.set()
            for runner in self._runners:
                runner.cancel()
            await asyncio.wait({done})
            if not done.cancelled():
                done.exception()  # seen: nothing awaits it any more
            raise


def _on_loop(on_batch: Callable[[DeliveryReport], None]) -> Callable[[DeliveryReport], None]:
    """Call it on the loop, not in the consumer's thread."""
    loop = asyncio.get_running_loop()

    def tell(report: DeliveryReport) -> None:
        loop.call_soon_threadsafe(on_batch, report)

    return tell


async def _passed_on(requested: asyncio.Event, stop: Event) -> None:
    await requested.wait()
    stop.set()
