"""The loop of a subscriber: one thread keeps the place in the group; others, or an event loop, run the handler.

Batches handled by several handlers at once, each with the records of its own keys, in their order.

    a batch ──┬── lane 0: keys a, d ──► settled in order, in transactions of its own
              ├── lane 1: key b
              └── lane 2: keys c, e        the next batch begins when all lanes are through

What is acknowledged is the front of the batch up to the first record that is not settled. Those behind it that are
settled already are remembered: when the batch is given back, and comes again, they are not handled again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from eventstore.closing import Closing
from eventstore.delivery.attempt import Attempt, Delivering, DeliveryReport, Settling
from eventstore.delivery.calls import FORGET, Around, Calls, HandlerRunner, HandlerThread, Step
from eventstore.delivery.source import Arrival, Lag, Source
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import DeclarationError, FactfoldError, StoreUnavailable, SubscriptionError
from eventstore.restarts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore.inbox import Inbox


Late = tuple[Step, Arrival]


class Lane:
    """A handler with a thread or task, transactions and a watch of its own."""

    def __init__(self, parts: Delivering) -> None:
        self.runner, self.inbox = parts.runner, parts.inbox
        self.calls = Calls(timeout=parts.subscription.timeout, patience=parts.patience)
        self._settling = Settling(parts, Attempt(parts, self.calls))
        self._run: Sequence[Arrival] = ()
        self.job: Future[None] | None = None

    def start(self, run: Sequence[Arrival], then: Callable[[Lane], None]) -> None:
        """Settle a run in the lane's own thread or task, and do something else behind it."""
        self._run = run

        def work() -> None:
            self._settling.settle(run)
            then(self)

        self.job = self.runner.start(work)

    @property
    def report(self) -> DeliveryReport:
        """What became of the run at hand."""
        return self._settling.report if self._run else DeliveryReport()

    @property
    def unsettled(self) -> Sequence[Arrival]:
        """The records of the run at hand that are not done."""
        return self._run[self._settling.settled :] if self._run else ()

    def give_up(self) -> Late | None:
        """Give up a call that takes too long, and the lane with it; return what it was at."""
        if self.job is None or (late := self.calls.give_up()) is None:
            return None
        self.runner.give_up(self.job, self.inbox.sever if self.inbox else lambda: None)
        self.job = None
        return late

    def rest(self) -> None:
        """Take no part in a batch."""
        self._run, self.job = (), None


class Lanes:
    """All lanes of a subscriber; with one of them the batch is handled in its own order."""

    def __init__(self, lanes: Sequence[Lane], source: Source[Any], *, halt: Event) -> None:
        self._lanes = lanes
        self._source = source
        self._halt = halt
        self._known: set[str] = set()
        # What was given up of the batch at hand.
        self.late: Late | None = None

    def start(self, arrivals: Sequence[Arrival], then: Callable[[Lane], None]) -> None:
        """Hand a batch out to the lanes; `then` is done behind it, once."""
        self.late = None
        parts = self._parts(arrivals)
        for lane in self._lanes:
            lane.rest()
        busy = [(lane, part) for lane, part in zip(self._lanes, parts, strict=True) if part]
        for number, (lane, part) in enumerate(busy):
            lane.start(part, _nothing if number else then)

    def wait(self, seconds: float) -> bool:
        """Wait for all lanes, and say whether they are through; one that failed halts the others."""
        jobs = [lane.job for lane in self._lanes if lane.job is not None]
        waiting = wait([job for job in jobs if not job.done()], seconds, FIRST_EXCEPTION).not_done
        if waiting and any(job.done() and (job.cancelled() or job.exception()) for job in jobs):
            self._halt.set()
        return not waiting

    def give_up(self) -> None:
        """Give up the calls that take too long; the first of them ends the others after their calls at hand."""
        for lane in self._lanes:
            if (late := lane.give_up()) is not None:
                self.late = self.late or late
                self._halt.set()

    def raise_failure(self) -> None:
        """Raise the error of a lane that failed."""
        for lane in self._lanes:
            if lane.job is not None:
                lane.job.result()

    def report(self) -> DeliveryReport:
        """Return what became of the batch at hand."""
        total = DeliveryReport()
        for lane in self._lanes:
            total.add(lane.report)
        return total

    def settled(self, arrivals: Sequence[Arrival]) -> int:
        """Return how many records from the front of a batch are done; those behind the first other are noted."""
        left = {arrival.place for lane in self._lanes for arrival in lane.unsettled}
        if not left:
            self._known = set()
            return len(arrivals)
        end = next(at for at, arrival in enumerate(arrivals) if arrival.place in left)
        self._known = {arrival.place for arrival in arrivals[end:]} - left
        return end

    def _parts(self, arrivals: Sequence[Arrival]) -> list[Sequence[Arrival]]:
        if len(self._lanes) == 1:
            return [arrivals]
        parts: list[list[Arrival]] = [[] for _ in self._lanes]
        for arrival in arrivals:
            if arrival.place not in self._known:
                parts[hash(self._source.key_of(arrival)) % len(parts)].append(arrival)
        return list(parts)


def _nothing(lane: Lane) -> None:
    """Only one lane does what comes behind a batch."""


# Only a handler slower than this makes the group's partitions pause, since pausing throws away what was fetched ahead.
_GLANCE_SECONDS: Final = 0.25
_POLL_SECONDS: Final = 0.5
_FORGETTING_SECONDS: Final = 3600.0


class Subscriber(Closing):
    """Delivers what a source gives to a subscription's handler. Close it, or use it in `with`.

    Args:
        subscription: The subscription.
        source: Where records come from.
        engine: The database that the handler writes to. A handler that takes `tx` needs it.
        patience: How long to wait for a database that does not answer, in seconds.
        runners: Where the handler runs, one for each handler in parallel. By default threads.
        around: Context managers that are opened around each call of the handler, such as a span.

    Examples:
        >>> with Subscriber(review, StoreSource(store, review, category="payment"), engine=engine) as subscriber:
        ...     subscriber.run_once().handled
        12
    """

    def __init__(
        self,
        subscription: Subscription[..., Any],
        source: Source[Any],
        *,
        engine: Engine | None = None,
        patience: float = PATIENCE_SECONDS,
        runners: Sequence[HandlerRunner] = (),
        around: Sequence[Around] = (),
    ) -> None:
        self._subscription = subscription
        self._source = source
        runners = runners or [HandlerThread(f"handler of {subscription.group}") for _ in range(subscription.parallel)]
        _check_kind(subscription, runners[0])
        self._halt = Event()
        self._going = Event()
        self._going.set()
        inboxes = [_inbox(subscription, engine) for _ in runners]
        self._each = [
            Lane(Delivering(subscription, source, inbox, runner, self._halt, patience, around))
            for inbox, runner in zip(inboxes, runners, strict=True)
        ]
        self._lanes = Lanes(self._each, source, halt=self._halt)
        self._at_hand: Sequence[Arrival] | None = None
        self._stop = Event()
        self._unsettled = 0
        self._forgets_at = 0.0
        self._last = DeliveryReport()
        self._total = DeliveryReport()
        self._open()

    @property
    def report(self) -> DeliveryReport:
        """What became of all records so far."""
        return replace(self._total)

    def run(self, *, stop: Event, on_batch: Callable[[DeliveryReport], None] | None = None) -> DeliveryReport:
        """Deliver until `stop` is set. The current handler call is finished, and its batch up to there is committed.

        Records that were not acknowledged arrive again, however the run ended.

        Args:
            stop: Ends the run.
            on_batch: Is called after each batch with records.

        Raises:
            SubscriptionError: A handler ran longer than the subscription's timeout.
            CheckpointMoved: Another subscriber of the group advanced the checkpoint.
            StoreUnavailable: The database did not answer.
            KafkaError: Kafka did not answer or refused. An unreadable record raises its own error if it stops the
                subscription.
        """
        self._stop = stop
        try:
            while not stop.is_set():
                report = self.run_once()
                if on_batch is not None and report.records:
                    on_batch(report)
        finally:
            self._stop = Event()
        return self.report

    def run_once(self, *, timeout: float = _POLL_SECONDS) -> DeliveryReport:
        """Deliver the next batch, if one arrives within `timeout` seconds. Raises the errors of `run`."""
        if self._unsettled:
            raise self._left_behind()
        self._last = DeliveryReport()
        if not self._going.is_set():
            self._source.keep_alive()
            self._going.wait(min(timeout, _GLANCE_SECONDS))
            return self._last
        arrivals = self._source.poll(timeout)
        if arrivals and self._subscription.at_most_once:
            arrivals = self._source.take(arrivals)
        if arrivals:
            self._halt.clear()
            self._lanes.start(arrivals, lambda lane: self._forget(lane, arrivals[-1]))
            self._at_hand = arrivals
            try:
                self._source.prepare()
            finally:
                self._finish(self._source.keep_alive)
        return self._last

    def pause(self) -> None:
        """Deliver nothing more after the handler call at hand, and stay a member of the group. From any thread."""
        self._going.clear()

    def resume(self) -> None:
        """Go on after `pause`, with the record that comes next. From any thread."""
        self._going.set()

    def lag(self) -> Lag:
        """Return how far the group is behind: `records` and `seconds`, and both by partition in `partitions`."""
        return self._source.lag()

    def close(self) -> None:
        """End a batch that is still at hand, as after an error of the source, and leave the group at once."""
        self._halt.set()
        try:
            self._finish(lambda: None)
        finally:
            self._close_runners()
            self._source.close()

    def _open(self) -> None:
        first = self._each[0]
        try:
            if first.inbox is not None:
                # Where its transactions will be: an asyncio engine is used on its loop only.
                first.runner.start(partial(_prepare, first.inbox, self._subscription)).result()
            self._source.open(self._on_revoked)
        except BaseException:
            self._close_runners()
            raise

    def _close_runners(self) -> None:
        for lane in self._each:
            lane.runner.close()

    def _on_revoked(self) -> None:
        """End the current batch after its handler call: the group waits, and drops a member that takes too long."""
        self._halt.set()
        self._finish(lambda: None)

    def _finish(self, meanwhile: Callable[[], None]) -> None:
        """Wait until the batch at hand is settled or halted, and acknowledge what of it is done.

        `meanwhile` may come back here, when partitions are taken from us while the handler works.
        """
        while self._at_hand is not None:
            if self._stop.is_set() or not self._going.is_set():
                self._halt.set()
            if self._lanes.wait(min(_GLANCE_SECONDS, self._subscription.timeout / 4)):
                left = self._ended(self._at_hand)
                self._lanes.raise_failure()
                if (late := self._lanes.late) is not None:
                    raise self._too_late(*late)
                self._give_back(left)
            else:
                self._lanes.give_up()
                meanwhile()

    def _ended(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """Acknowledge what is done of a batch, and return what is not."""
        self._at_hand = None
        self._last = self._lanes.report()
        self._total.add(self._last)
        settled = self._lanes.settled(arrivals)
        self._unsettled = len(arrivals) - settled
        if settled and not self._subscription.at_most_once:
            self._source.acknowledge(arrivals[:settled])
        return arrivals[settled:]

    def _give_back(self, left: Sequence[Arrival]) -> None:
        if left:
            self._source.give_back(left)
            self._unsettled = 0

    def _too_late(self, step: Step, arrival: Arrival) -> FactfoldError:
        name, timeout = self._subscription.name, self._subscription.timeout
        if step.handlers:
            return SubscriptionError(
                f"handler {name} did not return within {timeout:g} s",
                remedy=f"find what it waits for, or give the subscription a longer timeout. {self._comes}",
                place=arrival.place,
                code="handler-hung",
            )
        return StoreUnavailable(
            f"{name} waited for its database for too long, to {step.what}",
            remedy=f"look for a lock that is held, or a connection whose other end does not answer. {self._comes}",
            place=arrival.place,
        )

    def _left_behind(self) -> SubscriptionError:
        """Refuse to go on behind records that were not settled: acknowledging later ones would lose them."""
        return SubscriptionError(
            f"the subscriber of {self._subscription.group!r} ended with {self._unsettled} records unsettled",
            remedy=f"open another one: {self._comes}",
            place=self._subscription.name,
        )

    @property
    def _comes(self) -> str:
        return "what was at hand is lost" if self._subscription.at_most_once else "the record arrives again"

    def _forget(self, lane: Lane, arrival: Arrival) -> None:
        """Let the inbox forget old events, now and then; goes on after the next batch where there are many."""
        now = time.monotonic()
        if lane.inbox is None or not self._subscription.effectively_once or now < self._forgets_at:
            return
        lane.calls.begin(FORGET, arrival)
        try:
            topics = {topic for each in self._each if each.inbox is not None for topic in each.inbox.topics}
            forgotten = lane.inbox.forget(topics, self._subscription.remember)
        except StoreUnavailable:
            forgotten = 0  # there is time; a batch that needs the database says more
        finally:
            lane.calls.end()
        if not forgotten:
            self._forgets_at = now + _FORGETTING_SECONDS


def _inbox(subscription: Subscription[..., Any], engine: Engine | None) -> Inbox | None:
    if not subscription.signature.tx:
        return None
    if engine is None:
        raise DeclarationError(
            f"{subscription.name} takes a transaction, and there is no database to begin it in",
            remedy="name the database the handler writes to: --inbox-url or FACTFOLD_INBOX_URL, in Python engine=",
            place=subscription.name,
        )
    from eventstore.inbox import Inbox  # SQLAlchemy is loaded when it is first used

    return Inbox(engine, subscription.group)


def _prepare(inbox: Inbox, subscription: Subscription[..., Any]) -> None:
    inbox.check_engine()
    if subscription.effectively_once:
        inbox.create_tables()


def _check_kind(subscription: Subscription[..., Any], runner: HandlerRunner) -> None:
    """Refuse a handler that would never be awaited, or would keep others of its loop waiting; DeclarationError."""
    awaits = subscription.signature.awaits
    if awaits != runner.awaits:
        kind, other = ("a coroutine function", "AsyncSubscriber") if awaits else ("a plain function", "Subscriber")
        raise DeclarationError(
            f"handler {subscription.name} is {kind}",
            remedy=f"deliver to it by {other}, or write it as {'def' if awaits else 'async def'}",
            place=subscription.name,
        )
