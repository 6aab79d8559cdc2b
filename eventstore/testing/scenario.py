"""Given events, when a command, then events, a refusal, a state: an aggregate's rules tested without a store.

    given(Order, Order.Placed(sku="tea")).when(Order.ship, carrier="sea").then(Order.Shipped(carrier="sea"))

Every event passes through Avro on its way, as it would through a store, and what a command leaves behind is compared
with what its events make of the same past: a command that changes the state by itself works until the aggregate is
loaded again, and fails here.

A clock that stands still and ids that count: what a test compares must not depend on when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from uuid import UUID

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import Refused
from eventstore.event_types import EventType, type_of_object
from eventstore.fields.serialization import AvroDecoder, decode_value, encode_value


class FixedClock:
    """A clock that stands still until it is moved, for the `clock` of stores.

    Examples:
        >>> clock = FixedClock()
        >>> store = MemoryEventStore(clock=clock)
        >>> clock.advance(timedelta(days=1))
    """

    def __init__(self, moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Tell the moment."""
        return self.moment

    def advance(self, by: timedelta) -> datetime:
        """Move the clock, backwards if `by` is negative, and return the new moment."""
        self.moment += by
        return self.moment


class FixedIds:
    """UUIDs that count from 1, for the `new_id` of stores and dispatchers.

    Examples:
        >>> store = MemoryEventStore(new_id=FixedIds())
    """

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> UUID:
        """Give the next one."""
        self._last += 1
        return UUID(int=self._last)


# ruff: noqa: S101  # assertions are what this module is for


A = TypeVar("A", bound=Aggregate)
P = ParamSpec("P")


@dataclass(frozen=True)
class Outcome(Generic[A]):
    """The result of a command: the events and the state after them, or the reason for a refusal.

    Examples:
        >>> outcome = given(Order).when(Order.place, customer_id=7, quantity=0)
        >>> outcome.then_refused("at least 1")
    """

    state: A
    events: Sequence[object]
    reason: str | None = None

    def then(self, *events: object) -> Self:
        """Check that the command was accepted and led to exactly these events, none if it changed nothing."""
        assert self.reason is None, f"refused: {self.reason}"
        assert list(self.events) == list(events), _difference("events", list(events), list(self.events))
        return self

    def then_refused(self, reason: str | None = None) -> Self:
        """Check that the command was refused. `reason` is a part of its reason."""
        assert self.reason is not None, f"accepted: {list(self.events)}"
        assert reason is None or reason in self.reason, _difference("reason", reason, self.reason)
        return self

    def then_state(self, **fields: object) -> Self:
        """Check fields of the state."""
        values = self.state.state()
        actual = {name: values[name] if name in values else getattr(self.state, name) for name in fields}
        assert actual == fields, _difference("state", fields, actual)
        return self


@dataclass(frozen=True)
class Scenario(Generic[A]):
    """An aggregate with a past. Each `when` begins at that past.

    Examples:
        >>> scenario = given(Order, Order.Placed(customer_id=7, quantity=2))
        >>> scenario.when(Order.pay, amount=30).then(Order.Paid(amount=30))
    """

    kind: type[A]
    past: Sequence[object]
    id: str

    def when(self, command: Callable[Concatenate[Any, P], object], *args: P.args, **kwargs: P.kwargs) -> Outcome[A]:
        """Send one command. Raises AssertionError if it changes the state beyond its events."""
        state = self.state()
        try:
            emitted = self.kind.decide(state, command, *args, **kwargs)
        except Refused as refused:
            return Outcome(self.state(), (), refused.reason)
        replayed = self._evolved([*self.past, *emitted])
        assert replayed.state() == state.state(), _difference(
            "what the events make of the state", replayed.state(), state.state()
        )
        return Outcome(replayed, emitted)

    def state(self) -> A:
        """The aggregate after its past."""
        return self._evolved(self.past)

    def _evolved(self, events: Sequence[object]) -> A:
        state = self.kind.initial_state(self.id)
        for event in events:
            declared = type_of_object(event)
            values = _through_avro(declared, event)
            self.kind.evolve_plain(state, declared.name, values)
        return state


def _through_avro(declared: EventType, event: object) -> dict[str, Any]:
    """The event's values as a store would give them back."""
    if declared.personal:  # sealed and opened, nothing would be different
        return {f.name: decode_value(f.type.avro, encode_value(f.type.avro, declared.to_plain(event)[f.name]))
                for f in declared.fields}  # fmt: skip
    return AvroDecoder(lambda _: declared.registered).decode(declared.encode(event))[1]


def given(kind: type[A], *past: object, id: str = "1") -> Scenario[A]:
    """Return an aggregate to which these events have happened, in this order.

    Returns:
        A scenario. `when` sends it one command. `then`, `then_refused` and `then_state` check the outcome.

    Examples:
        >>> given(Order, Order.Placed(quantity=2)).when(Order.pay, amount=9).then(Order.Paid(amount=9))
    """
    return Scenario(kind, past, id)


def _difference(what: str, expected: object, actual: object) -> str:
    return f"{what}\n  expected: {expected}\n  found:    {actual}"
