"""Batches handled by several handlers at once, each with the records of its own keys, in their order.

    a batch ──┬── lane 0: keys a, d ──► settled in order, in transactions of its own
              ├── lane 1: key b
              └── lane 2: keys c, e        the next batch begins when all lanes are through

What is acknowledged is the front of the batch up to the first record that is not settled. Those behind it that are
settled already are remembered: when the batch is given back, and comes again, they are not handled again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from threading import Event
from typing import Any

from eventstore.delivery.arrivals import Arrival
from eventstore.delivery.attempt import Attempt, Delivering, DeliveryReport
from eventstore.delivery.calls import Calls, Step
from eventstore.delivery.settling import Settling
from eventstore.delivery.source import Source

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
