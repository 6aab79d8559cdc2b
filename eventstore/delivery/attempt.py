"""One attempt to deliver a run of arrivals: in one transaction with inbox and checkpoint, or without any."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from eventstore.delivery.arrivals import Arrival, Delivery
from eventstore.delivery.calls import BEGIN, BURY, CALL, COMMIT, Around, Calls, HandlerCall, HandlerRunner, entered
from eventstore.delivery.source import Source
from eventstore.delivery.subscriptions import Subscription
from eventstore.errors import FactfoldError, SchemaError, StoreUnavailable
from eventstore.messages import RecordedEvent

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eventstore.backends.sql.lending import LentTransaction
    from eventstore.inbox import Inbox


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
        self.handled += other.handled
        self.duplicates += other.duplicates
        self.skipped += other.skipped
        self.retried += other.retried
        self.dead += other.dead
        self.postponed += other.postponed

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
                inbox.of(self._source.checkpoint_name(arrival)).give_up(tx, arrival.id)
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
        new = [one for topic, part in parts.items() for one in self._new(inbox.of(topic), tx, part)]
        return new if len(parts) == 1 else sorted(new, key=lambda one: one.place)

    def _new(self, inbox: Inbox, tx: Connection, pending: list[_Pending]) -> list[_Pending]:
        first = {one.arrival.id: one for one in reversed(pending)}
        new = inbox.claim(tx, list(first))
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
    return sum(inbox.of(topic).unclaim(tx, ids) for topic, ids in claims.items())


def _end(run: Sequence[Arrival], left: list[_Pending]) -> int:
    return left[0].place if left else len(run)
