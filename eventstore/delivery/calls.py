"""What a handler is at, as the subscriber's thread sees it: since when, and the right to give it up; where it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from eventstore.store import RecordedEvent

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eventstore.delivery.source import Arrival
    from eventstore.delivery.subscriptions import Subscription

T = TypeVar("T")


class GivenUp(BaseException):
    """Raised in the handler's own thread where what it was at came back too late: nothing of it is committed."""


class Step(NamedTuple):
    """A step on the way of a record, and whether it is the handler's or a database's."""

    what: str
    handlers: bool = False


BEGIN: Final = Step("begin a transaction and claim its events")
CALL: Final = Step("call the handler", handlers=True)
COMMIT: Final = Step("commit what its handler did")
BURY: Final = Step("keep a record that was given up")
FORGET: Final = Step("forget old events")


class Calls:
    """At most one running step. The first thread that takes it decides its outcome."""

    def __init__(self, *, timeout: float, patience: float) -> None:
        self._lock = Lock()
        self._running: tuple[Step, Arrival, float] | None = None
        self._timeout = timeout
        # What a handler may wait for, its transaction may wait for too: often it is the same lock.
        self._longest = max(timeout, patience)

    def begin(self, step: Step, arrival: Arrival) -> None:
        """Note the first of several steps for this record."""
        self._running = (step, arrival, time.monotonic())

    def go_on(self, step: Step, arrival: Arrival) -> None:
        """Note the next step; GivenUp where the one before took too long."""
        with self._lock:
            if self._running is None:
                raise GivenUp
            self._running = (step, arrival, time.monotonic())

    def end(self) -> None:
        """Note that the last step is done; GivenUp where that was too late."""
        with self._lock:
            running, self._running = self._running, None
        if running is None:
            raise GivenUp

    def give_up(self) -> tuple[Step, Arrival] | None:
        """Give up a step that has been running for too long, and return it with its record."""
        with self._lock:
            running = self._running
            if running is None:
                return None
            step, arrival, since = running
            if time.monotonic() - since < (self._timeout if step.handlers else self._longest):
                return None
            self._running = None
            return step, arrival


class HandlerRunner(Protocol):
    """Where handlers run, and with them all that belongs in their transactions: not in the subscriber's thread."""

    @property
    def awaits(self) -> bool:
        """Whether handlers are coroutine functions."""

    def start(self, job: Callable[[], T]) -> Future[T]:
        """Run a job, and return where its end will be known."""

    def called(self, handler: Callable[..., Any]) -> Callable[..., object]:
        """Return a function that calls a handler, and returns when it is done."""

    def lent(self, tx: Connection) -> Any:
        """Return a transaction as handlers take it."""

    def wait(self, halt: Event, seconds: float) -> bool:
        """Wait within a job, until it is to halt or so many seconds are over; say whether it is to halt."""

    def aside(self, work: Callable[[], None]) -> None:
        """Do within a job what waits for something else than the handler's database."""

    def give_up(self, job: Future[Any], sever: Callable[[], None]) -> None:
        """End a job that takes too long, as far as that can be done; `sever` cuts its connection."""

    def close(self) -> None:
        """Run no more jobs after the one at hand."""


class HandlerThread:
    """One thread that runs jobs one by one. A daemon: a handler that hangs must not keep the process alive."""

    awaits: Final = False

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name, daemon=True)

    def start(self, job: Callable[[], T]) -> Future[T]:
        """Run a job, and return where its end will be known."""
        if self._thread.ident is None:
            self._thread.start()
        future: Future[T] = Future()
        self._jobs.put((job, future))
        return future

    def called(self, handler: Callable[..., Any]) -> Callable[..., object]:
        """Return the handler itself."""
        return handler

    def lent(self, tx: Connection) -> Connection:
        """Return the transaction itself."""
        return tx

    def wait(self, halt: Event, seconds: float) -> bool:
        """Wait, as the only one in this thread."""
        return halt.wait(seconds)

    def aside(self, work: Callable[[], None]) -> None:
        """Do it here: nothing else waits for this thread."""
        work()

    def give_up(self, job: Future[Any], sever: Callable[[], None]) -> None:
        """Cut the connection: a thread cannot be stopped."""
        sever()

    def close(self) -> None:
        """Let the thread end after the job at hand."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, future = entry
            try:
                result = job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call of a handler, as `around` gets it. If the call fails, the handler's error passes through the block.

    A handler of single events is called for one record at a time.

    Attributes:
        subscription: The subscription.
        topic: The topic of the first record.
        arrivals: The records.

    Examples:
        >>> def around(call: HandlerCall) -> AbstractContextManager[object]:
        ...     return tracer.start_as_current_span(call.subscription.name)
    """

    subscription: Subscription[..., Any]
    topic: str
    arrivals: Sequence[Arrival]

    @property
    def events(self) -> list[RecordedEvent]:
        """The events as they were recorded. NotFramedAvro if headers of a record are missing."""
        return [arrival.recorded() for arrival in self.arrivals]


Around: TypeAlias = Callable[[HandlerCall], AbstractContextManager[object]]


@contextmanager
def entered(around: Sequence[Around], call: HandlerCall) -> Iterator[None]:
    """Open all of them, the first outermost."""
    with ExitStack() as stack:
        for one in around:
            stack.enter_context(one(call))
        yield
