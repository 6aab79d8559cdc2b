"""One attempt to deliver a run of arrivals: in one transaction with inbox and checkpoint, or without any."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from eventstore.delivery.calls import BEGIN, BURY, CALL, COMMIT, Calls, HandlerRunner
from eventstore.delivery.source import Arrival, Source
from eventstore.errors import FactfoldError, SchemaError, StoreUnavailable
from eventstore.messages import RecordedEvent
from eventstore.subscriptions import Subscription

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from eventstore.backends.sql.transactions import LentTransaction
    from eventstore.inbox import Inbox


@dataclass(slots=True)
class DeliveryReport:
    """What became of records: handled, known already, of no interest, tried again, given up."""

    handled: int = 0
    duplicates: int = 0
    skipped: int = 0
    retried: int = 0
    dead: int = 0

    def add(self, other: DeliveryReport) -> None:
        """Count what another report counted."""
        self.handled += other.handled
        self.duplicates += other.duplicates
        self.skipped += other.skipped
        self.retried += other.retried
        self.dead += other.dead

    @property
    def records(self) -> int:
        """Records acknowledged."""
        return self.handled + self.duplicates + self.skipped + self.dead


class AttemptFailed(Exception):
    """A run was not delivered; `index` is the record whose fault it was, None where that is not known.

    `done` counts the records before it whose effects stay, since no transaction takes them back. `hopeless` ones are
    not tried again: their data does not fit the class.
    """

    def __init__(
        self, cause: Exception, index: int | None, *, done: DeliveryReport | None = None, hopeless: bool = False
    ) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.index = index
        self.done = done
        self.hopeless = hopeless


class _Pending(NamedTuple):
    """A record to hand over: its arrival and place in the run, its events as the handler takes them, and as recorded.

    There is one event, unless an upcaster makes several of an old one; they are handled together.
    """

    place: int
    arrival: Arrival
    events: list[Any]
    recorded: RecordedEvent | None


class Attempt:
    """Calls a subscription's handler for runs of arrivals; `halt` ends a run after the call at hand."""

    def __init__(
        self,
        subscription: Subscription[..., Any],
        source: Source[Any],
        inbox: Inbox | None,
        *,
        runner: HandlerRunner,
        calls: Calls,
        halt: Event,
    ) -> None:
        self._handler = runner.called(subscription.handler)
        self._runner = runner
        self._signature = subscription.signature
        self._keeps_inbox = subscription.keeps_inbox
        self._source = source
        self._inbox = inbox
        self._calls = calls
        self._halt = halt

    def deliver(self, run: Sequence[Arrival]) -> DeliveryReport:
        """Hand over a run, or so many records from its front as the report counts, where it was halted.

        AttemptFailed, StoreUnavailable, and the source's own errors.
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
        wanted = bisect_left(pending, end, key=lambda one: one.place)
        return DeliveryReport(handled=handled, duplicates=wanted - handled, skipped=end - wanted)

    def bury(self, arrival: Arrival, store: Callable[[], None]) -> None:
        """Note that a record was given up, once it is stored as a dead letter; StoreUnavailable, KafkaError."""
        self._calls.begin(BURY, arrival)
        try:
            self._runner.aside(store)
            if self._inbox is not None:
                self._note_burial(self._inbox, arrival)
        finally:
            self._calls.end()

    def _note_burial(self, inbox: Inbox, arrival: Arrival) -> None:
        with inbox.begin() as tx:
            if arrival.type is not None and self._keeps_inbox:
                inbox.give_up(tx, arrival.id)
            self._source.checkpoint(tx, [arrival])

    def _in_transaction(self, inbox: Inbox, run: Sequence[Arrival], pending: list[_Pending]) -> tuple[int, int]:
        """Return how many events were handled, and how many records of the run are done with that."""
        lent: LentTransaction | None = None
        new = pending
        try:
            with inbox.lend() as lent:
                # It may have come after a long wait, and then is not ours to use.
                self._calls.go_on(BEGIN, run[0])
                new = self._claimed(inbox, lent.tx, pending)
                lent.check()
                handled = self._hand_over(new, lent)
                self._calls.go_on(COMMIT, run[0])
                end = _end(run, left := new[handled:])
                self._unclaim(inbox, lent.tx, left)
                self._source.checkpoint(lent.tx, run[:end])
        except Exception as error:
            if lent is not None and lent.gone:
                self._repair(inbox, [one for one in new if one.place >= (getattr(error, "index", None) or 0)])
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
            raise AttemptFailed(error, place, hopeless=True) from error
        return pending

    def _claimed(self, inbox: Inbox, tx: Connection, pending: list[_Pending]) -> list[_Pending]:
        """Return the events not handled before, each once."""
        if not self._keeps_inbox:
            return pending
        first = {one.arrival.id: one for one in reversed(pending)}
        new = inbox.claim(tx, list(first))
        if new is None and len(first) == len(pending):
            return pending
        return [one for one in pending if first[id := one.arrival.id] is one and (new is None or id in new)]

    def _unclaim(self, inbox: Inbox, tx: Connection, left: list[_Pending]) -> None:
        if left and self._keeps_inbox:
            inbox.unclaim(tx, [one.arrival.id for one in left])

    def _repair(self, inbox: Inbox, left: list[_Pending]) -> None:
        """Take back claims a handler committed by speaking to the driver, where that cannot be refused."""
        with inbox.begin() as tx:
            self._unclaim(inbox, tx, left)

    def _hand_over(self, pending: list[_Pending], lent: LentTransaction | None) -> int:
        """Return how many records the handler took."""
        call = self._call_once if self._signature.many else self._call_each
        return call(pending, lent)

    def _call_each(self, pending: list[_Pending], lent: LentTransaction | None) -> int:
        handler, go_on, signature, is_halted = self._handler, self._calls.go_on, self._signature, self._halt.is_set
        # One dictionary for the batch: a call copies it anyway.
        given, handled = signature.arguments(None, None, lent and self._runner.lent(lent.tx)), 0
        try:
            for one in pending:
                if handled and is_halted():
                    break
                if signature.recorded is not None:
                    given[signature.recorded] = one.recorded
                for given[signature.event] in one.events:
                    go_on(CALL, one.arrival)
                    handler(**given)
                    if lent is not None:
                        lent.check()
                handled += 1
        except Exception as error:
            at = pending[handled].place
            done = DeliveryReport(handled=handled, skipped=at - handled) if lent is None else None
            raise self._failed(error, at, done) from error
        return handled

    def _call_once(self, pending: list[_Pending], lent: LentTransaction | None) -> int:
        if not pending:
            return 0
        self._calls.go_on(CALL, pending[0].arrival)
        try:
            events = [event for one in pending for event in one.events]
            recorded = [one.recorded for one in pending for _ in one.events]
            self._handler(**self._signature.arguments(events, recorded, lent and self._runner.lent(lent.tx)))
            if lent is not None:
                lent.check()
        except Exception as error:
            raise self._failed(error, pending[0].place if len(pending) == 1 else None, None) from error
        return len(pending)

    def _failed(self, error: Exception, at: int | None, done: DeliveryReport | None) -> Exception:
        """Tell a handler that failed from a database that went away below it."""
        if isinstance(error, StoreUnavailable):
            return error
        outage = None if self._inbox is None else self._inbox.outage(error)
        return outage or AttemptFailed(error, at, done=done)


def _end(run: Sequence[Arrival], left: list[_Pending]) -> int:
    return left[0].place if left else len(run)
