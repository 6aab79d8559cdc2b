"""One attempt to deliver a run of arrivals: in one transaction with inbox and checkpoint, or without any.

Settling every record of a batch: it is handled, or stored as a dead letter with its cause.

    the whole run in one transaction
      └ a record fails → everything before it, again in one transaction → the record alone, after a pause, so often as
        the subscription allows → dead letter, or put off → the rest in one transaction

Nothing overtakes a record that is tried again: order holds within every key. One bad record costs its batch one
transaction more, not one a record. If the failed record is unknown (a batch handler, a commit), the run is halved
until it is one record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from eventstore.delivery.calls import BEGIN, BURY, CALL, COMMIT, Around, Calls, HandlerCall, HandlerRunner, entered
from eventstore.delivery.source import (
    Arrival,
    DeadLetter,
    Delivery,
    Rejected,
    Released,
    Source,
    masked_message,
    masked_traceback,
)
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import FactfoldError, SchemaError, StoreUnavailable, is_final
from eventstore.store import RecordedEvent

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eventstore.inbox import Inbox, LentTransaction


@dataclass(slots=True)
class DeliveryReport:
    """How many records a subscription delivered, by what became of them.

    Attributes:
        handled: Delivered, and the handler returned.
        duplicates: Delivered before, and acknowledged without a call.
        skipped: Of no interest to the handler.
        retried: Attempts that failed and were repeated.
        dead: Stored as dead letters.
        postponed: Moved to the retry topic.

    Examples:
        >>> subscriber.run_once().dead
        0
    """

    handled: int = 0
    duplicates: int = 0
    skipped: int = 0
    retried: int = 0
    dead: int = 0
    postponed: int = 0

    def add(self, other: DeliveryReport) -> None:
        """Count what another report counted."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def records(self) -> int:
        """Records acknowledged."""
        return self.handled + self.duplicates + self.skipped + self.dead + self.postponed


class AttemptFailed(Exception):
    """A run was not delivered. `index` is the record that caused the failure, or None if it is unknown.

    `done` counts the records before it whose effects stay, because no transaction rolls them back.
    """

    def __init__(self, cause: Exception, index: int | None, *, done: DeliveryReport | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.index = index
        self.done = done


class AttemptHopeless(Exception):
    """A run was not delivered, and some of its records are not to be tried again.

    Their data does not fit the class (`calls` is 0), or their handler committed a part of its effects.
    """

    def __init__(self, cause: Exception, indices: Sequence[int], *, calls: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.indices = indices
        self.calls = calls


class _Pending(NamedTuple):
    """A record to hand over: its arrival and place in the run, its events as the handler takes them, and as recorded.

    There is one event, unless an upcaster makes several of an old one; they are handled together.
    """

    place: int
    arrival: Arrival
    events: list[Any]
    recorded: RecordedEvent | None


class _Committed(NamedTuple):
    """Claims that a handler may have committed instead of the subscriber, the records that caused it, and the error."""

    claims: Mapping[str, list[str]]
    culprits: frozenset[str]
    cause: Exception


@dataclass(frozen=True, slots=True)
class Delivering:
    """The parts of a delivery that one handler has for itself, or shares with others.

    Attributes:
        subscription: The subscription.
        source: Where records come from.
        inbox: The inbox of the handler's database, None without one.
        runner: Where the handler runs.
        halt: Ends a run after the call at hand.
        patience: How long to wait for a database that does not answer, in seconds.
        around: Context managers that are opened around each call of the handler.
    """

    subscription: Subscription[..., Any]
    source: Source[Any]
    inbox: Inbox | None
    runner: HandlerRunner
    halt: Event
    patience: float
    around: Sequence[Around]


class Attempt:
    """Calls a subscription's handler for runs of arrivals; `halt` ends a run after the call at hand."""

    def __init__(self, parts: Delivering, calls: Calls) -> None:
        self._subscription, self._source, self._inbox = parts.subscription, parts.source, parts.inbox
        self._runner, self._halt, self._around = parts.runner, parts.halt, parts.around
        self._handler = parts.runner.called(parts.subscription.handler)
        self._signature = parts.subscription.signature
        self._effectively_once = parts.subscription.effectively_once
        self._stores_place = parts.subscription.stores_place
        self._calls = calls
        self._at_hand: list[_Pending] = []
        self._left: list[_Pending] = []
        self._committed: _Committed | None = None

    def deliver(self, run: Sequence[Arrival]) -> DeliveryReport:
        """Hand over a run, or so many records from its front as the report counts, where it was halted.

        AttemptFailed, AttemptHopeless, StoreUnavailable, and the source's own errors.
        """
        pending = self._pending(run)
        self._calls.begin(BEGIN, run[0])
        try:
            if self._inbox is None:
                handled = self._hand_over(pending, None)
                end = _end(run, pending[handled:])
            else:
                handled, end = self._in_transaction(self._inbox, run, pending)
        finally:
            self._calls.end()
        relevant = bisect_left(pending, end, key=lambda one: one.place)
        return DeliveryReport(handled=handled, duplicates=relevant - handled, skipped=end - relevant)

    def bury(self, arrival: Arrival, store: Callable[[], None], *, dead: bool) -> None:
        """Note that a record was given up or put off, once it is stored elsewhere; StoreUnavailable, KafkaError."""
        self._calls.begin(BURY, arrival)
        try:
            self._runner.aside(store)
            if self._inbox is not None:
                self._note_burial(self._inbox, arrival, dead=dead)
        finally:
            self._calls.end()

    def _note_burial(self, inbox: Inbox, arrival: Arrival, *, dead: bool) -> None:
        with inbox.begin() as tx:
            if dead and arrival.type is not None and self._effectively_once:
                inbox.give_up(tx, self._source.checkpoint_name(arrival), arrival.id)
            if self._stores_place:
                self._source.checkpoint(tx, [arrival])

    def _in_transaction(self, inbox: Inbox, run: Sequence[Arrival], pending: list[_Pending]) -> tuple[int, int]:
        """Return how many events were handled, and how many records of the run are done with that."""
        self._repair(inbox, run)
        lent: LentTransaction | None = None
        self._at_hand = self._left = []
        try:
            with inbox.lend() as lent:
                # It may have come after a long wait, and then is not ours to use.
                self._calls.go_on(BEGIN, run[0])
                new = self._claimed(inbox, lent.tx, pending)
                lent.watch()
                handled = self._hand_over(new, lent)
                self._calls.go_on(COMMIT, run[0])
                end = _end(run, left := new[handled:])
                self._unclaim(inbox, lent.tx, left)
                if self._stores_place:
                    self._source.checkpoint(lent.tx, run[:end])
        except Exception as error:
            if lent is not None and lent.ended:
                self._committed = self._may_stand(error)
                self._repair(inbox, run)
            if isinstance(error, FactfoldError | AttemptFailed):
                raise
            # The commit: a deferred constraint speaks up only there.
            raise AttemptFailed(error, None) from error
        return handled, end

    def _pending(self, run: Sequence[Arrival]) -> list[_Pending]:
        types, needs_recorded = self._signature.types, self._signature.needs_recorded
        pending: list[_Pending] = []
        place = 0
        try:
            for place, arrival in enumerate(run):
                kind = arrival.type
                if kind is None or (types is not None and kind not in types):
                    continue
                recorded = arrival.recorded() if needs_recorded else None
                events = [recorded] if types is None else self._signature.events(arrival)
                if events:
                    pending.append(_Pending(place, arrival, events, recorded))
        except SchemaError as error:
            raise AttemptHopeless(error, [place], calls=0) from error
        return pending

    def _claimed(self, inbox: Inbox, tx: Connection, pending: list[_Pending]) -> list[_Pending]:
        """Return the events not handled before, each once."""
        if not self._effectively_once:
            return pending
        parts = self._by_topic(pending)
        new = [one for topic, part in parts.items() for one in self._new(inbox, tx, topic, part)]
        return new if len(parts) == 1 else sorted(new, key=lambda one: one.place)

    def _new(self, inbox: Inbox, tx: Connection, topic: str, pending: list[_Pending]) -> list[_Pending]:
        first = {one.arrival.id: one for one in reversed(pending)}
        new = inbox.claim(tx, topic, list(first))
        if new is None and len(first) == len(pending):
            return pending
        return [one for one in pending if first[id := one.arrival.id] is one and (new is None or id in new)]

    def _unclaim(self, inbox: Inbox, tx: Connection, left: list[_Pending]) -> None:
        if left and self._effectively_once:
            _unclaimed(inbox, tx, self._ids(left))

    def _ids(self, pending: list[_Pending]) -> dict[str, list[str]]:
        return {topic: [one.arrival.id for one in part] for topic, part in self._by_topic(pending).items()}

    def _by_topic(self, pending: list[_Pending]) -> dict[str, list[_Pending]]:
        """Part records by the names under which they are stored, in one order: members never deadlock."""
        parts: dict[str, list[_Pending]] = {}
        for one in pending:
            parts.setdefault(self._source.checkpoint_name(one.arrival), []).append(one)
        return parts if len(parts) == 1 else dict(sorted(parts.items()))

    def _may_stand(self, error: Exception) -> _Committed:
        cause = error.cause if isinstance(error, AttemptFailed) else error
        claims = self._ids(self._left) if self._effectively_once else {}
        return _Committed(claims, frozenset(one.arrival.place for one in self._at_hand), cause)

    def _repair(self, inbox: Inbox, run: Sequence[Arrival]) -> None:
        """Take back the claims that a handler committed of events it had not handled, those after its own.

        Were there any, then a part of its effects stands as well, and would be there twice after another attempt:
        AttemptHopeless. What it rolled back is tried again like any failure. StoreUnavailable: the next run does it.
        """
        if (committed := self._committed) is None:
            return
        with inbox.begin() as tx:
            stood = _unclaimed(inbox, tx, committed.claims)
        self._committed = None
        culprits = [place for place, arrival in enumerate(run) if arrival.place in committed.culprits]
        if stood and culprits:
            raise AttemptHopeless(committed.cause, culprits, calls=1) from committed.cause

    def _hand_over(self, pending: list[_Pending], lent: LentTransaction | None) -> int:
        """Return how many records the handler took."""
        call = self._call_once if self._signature.many else self._call_each
        return call(pending, lent)

    def _call_each(self, pending: list[_Pending], lent: LentTransaction | None) -> int:
        go_on, signature, is_halted = self._calls.go_on, self._signature, self._halt.is_set
        handler = self._handler
        # One dictionary for the batch: a call copies it anyway.
        given, handled = signature.arguments(None, None, lent and self._runner.lent(lent.tx)), 0
        try:
            for one in pending:
                if handled and is_halted():
                    break
                if signature.recorded is not None:
                    given[signature.recorded] = one.recorded
                if signature.delivery is not None:
                    given[signature.delivery] = Delivery(one.arrival.retries + 1, one.arrival.place)
                if self._around:
                    handler = self._surrounded([one])
                for given[signature.event] in one.events:
                    go_on(CALL, one.arrival)
                    handler(**given)
                    if lent is not None:
                        lent.check()
                handled += 1
        except Exception as error:
            self._left, self._at_hand = pending[handled:], pending[handled : handled + 1]
            at = pending[handled].place
            done = DeliveryReport(handled=handled, skipped=at - handled) if lent is None else None
            raise self._failed(error, at, done) from error
        return handled

    def _call_once(self, pending: list[_Pending], lent: LentTransaction | None) -> int:
        if not pending:
            return 0
        self._calls.go_on(CALL, pending[0].arrival)
        self._left = self._at_hand = pending
        try:
            events = [event for one in pending for event in one.events]
            recorded = [one.recorded for one in pending for _ in one.events]
            handler = self._surrounded(pending) if self._around else self._handler
            handler(**self._signature.arguments(events, recorded, lent and self._runner.lent(lent.tx)))
            if lent is not None:
                lent.check()
        except Exception as error:
            raise self._failed(error, pending[0].place if len(pending) == 1 else None, None) from error
        return len(pending)

    def _surrounded(self, pending: Sequence[_Pending]) -> Callable[..., object]:
        """The handler within what is to stand around its call for these records."""
        arrivals = [one.arrival for one in pending]
        call = HandlerCall(self._subscription, self._source.checkpoint_name(arrivals[0]), arrivals)

        def surrounded(**given: Any) -> None:
            with entered(self._around, call):
                self._handler(**given)

        return surrounded

    def _failed(self, error: Exception, at: int | None, done: DeliveryReport | None) -> Exception:
        """Tell a handler that failed from a database that went away below it."""
        if isinstance(error, StoreUnavailable):
            return error
        outage = None if self._inbox is None else self._inbox.outage(error)
        return outage or AttemptFailed(error, at, done=done)


def _unclaimed(inbox: Inbox, tx: Connection, claims: Mapping[str, list[str]]) -> int:
    return sum(inbox.unclaim(tx, topic, ids) for topic, ids in claims.items())


def _end(run: Sequence[Arrival], left: list[_Pending]) -> int:
    return left[0].place if left else len(run)


log = structlog.get_logger()

Run = Sequence[Arrival]

_LONGEST_PAUSE_SECONDS: Final = 60.0


class _Interrupted(Exception):
    """The batch is to end where it stands: after the handler call at hand, or in a pause before the next attempt."""


class _Failure(NamedTuple):
    attempts: int
    cause: Exception
    hopeless: bool

    @property
    def decided(self) -> bool:
        """Whether another call has no use: it is hopeless, or the handler gave the record back."""
        return self.hopeless or isinstance(self.cause, Released)


class Settling:
    """Settles batches in order; `settled` counts the records of the present one that are done, from its front."""

    def __init__(self, parts: Delivering, attempt: Attempt) -> None:
        self._subscription, self._source = parts.subscription, parts.source
        self._runner, self._halt, self._patience = parts.runner, parts.halt, parts.patience
        self._attempt = attempt
        self._failures: dict[str, _Failure] = {}
        self.settled = 0
        self.report = DeliveryReport()

    def settle(self, arrivals: Run) -> None:
        """Settle a batch, or as much of it as is done when it is halted.

        StoreUnavailable after half a minute without a database; the record's own error where unreadable ones stop the
        subscription; the source's errors.
        """
        self._failures, self.settled, self.report = {}, 0, DeliveryReport()
        try:
            for part in _parts(arrivals):
                self._settle(part)
        except _Interrupted:
            return

    def _settle(self, part: Run) -> None:
        waiting = [part]
        while waiting:
            run = waiting.pop()
            if run and self._halt.is_set():
                raise _Interrupted
            if run:
                waiting.extend(reversed(self._outlasting(run)))

    def _outlasting(self, run: Run) -> list[Run]:
        """Take a step, again and again while the database is away."""
        until, pause, is_first = monotonic() + self._patience, self._subscription.backoff, True
        while True:
            try:
                return self._step(run)
            except StoreUnavailable as error:
                if monotonic() > until:
                    raise
                if is_first:
                    self._warn("database away, trying again", run, error)
                is_first = False
            self._wait(pause)
            pause = min(max(pause, 0.1) * 2, self._patience / 4)

    def _step(self, run: Run) -> list[Run]:
        """Settle a run, or return the runs that take its place."""
        problem, failure = run[0].problem, self._failures.get(run[0].place)
        if problem is not None:
            self._bury(run[0], _Failure(0, problem, hopeless=True))
            return []
        if failure is not None and len(run) == 1:
            if failure.decided or failure.attempts >= self._subscription.attempts:
                self._bury(run[0], failure)
                return []
            self._wait(min(self._subscription.backoff * 2 ** (failure.attempts - 1), _LONGEST_PAUSE_SECONDS))
            self.report.retried += 1
        try:
            report = self._attempt.deliver(run)
        except AttemptHopeless as failed:
            return self._set_apart(run, failed)
        except AttemptFailed as failed:
            return self._parted(run, failed)
        self._done(run[: report.records], report)
        return [run[report.records :]]

    def _parted(self, run: Run, failed: AttemptFailed) -> list[Run]:
        if failed.index is None and len(run) > 1:
            self._warn("handler failed", run, failed.cause)
            half = len(run) // 2
            return [run[:half], run[half:]]
        at = failed.index or 0
        self._note(run[at], failed.cause)
        if failed.done is None:
            return [run[:at], run[at : at + 1], run[at + 1 :]]
        self._done(run[:at], failed.done)
        return [run[at : at + 1], run[at + 1 :]]

    def _set_apart(self, run: Run, failed: AttemptHopeless) -> list[Run]:
        """Part a run at records that are not tried again: each of them stands alone."""
        parts, begin = list[Run](), 0
        for at in failed.indices:
            self._note(run[at], failed.cause, calls=failed.calls, hopeless=True)
            parts += [run[begin:at], run[at : at + 1]]
            begin = at + 1
        return [*parts, run[begin:]]

    def _note(self, culprit: Arrival, cause: Exception, *, calls: int = 1, hopeless: bool = False) -> None:
        before = self._failures.get(culprit.place)
        if before is None and not isinstance(cause, Released | Rejected):
            self._warn("handler failed", [culprit], cause)
        attempts = (before.attempts if before else 0) + calls
        self._failures[culprit.place] = _Failure(
            attempts, cause, hopeless or isinstance(cause, Rejected) or is_final(cause)
        )

    def _done(self, run: Run, report: DeliveryReport) -> None:
        self.settled += len(run)
        self.report.add(report)

    def _bury(self, arrival: Arrival, failure: _Failure) -> None:
        if arrival.problem is not None and self._subscription.unreadable == "stop":
            raise arrival.problem
        letter = DeadLetter(
            arrival=arrival,
            group=self._subscription.group,
            error=failure.cause,
            attempts=failure.attempts,
            time=datetime.now(UTC),
        )
        after = None if failure.hopeless else self._subscription.retry_delay(arrival.retries)
        if after is None:
            self._attempt.bury(arrival, lambda: self._source.dead_letter(letter), dead=True)
            self._warn("dead letter", [arrival], failure.cause, attempts=failure.attempts)
            self._done([arrival], DeliveryReport(dead=1))
            return
        self._attempt.bury(arrival, lambda: self._source.postpone(letter, after), dead=False)
        if not isinstance(failure.cause, Released):
            self._warn("put off", [arrival], failure.cause, attempts=failure.attempts, seconds=after.total_seconds())
        self._done([arrival], DeliveryReport(postponed=1))

    def _warn(self, what: str, run: Run, cause: Exception, **more: object) -> None:
        """Log a failure with its place, text and traceback, values of personal events masked."""
        log.warning(
            what,
            place=run[0].place if len(run) == 1 else f"{run[0].place} to {run[-1].place}",
            group=self._subscription.group,
            handler=self._subscription.name,
            error=type(cause).__name__,
            message=masked_message(cause, run),
            exception=masked_traceback(cause, run),
            **more,
        )

    def _wait(self, seconds: float) -> None:
        # Not stamina: its pause cannot be ended by a stop, and a signal must not wait for a minute's backoff.
        if self._runner.wait(self._halt, seconds):
            raise _Interrupted


def _parts(arrivals: Run) -> Iterator[Run]:
    """Part a batch at the records that cannot be read: each of them stands alone."""
    begin = 0
    for at, arrival in enumerate(arrivals):
        if arrival.problem is not None:
            yield arrivals[begin:at]
            yield arrivals[at : at + 1]
            begin = at + 1
    yield arrivals[begin:]
