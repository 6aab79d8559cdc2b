"""Processes written as functions: a state, and one function that decides about each input.

    Waiting = process_of(
        "waiting",
        initial_state=lambda: Basket(),
        starts={Order.Placed: None},
        reacts={Payment.Received: "order_id"},
        timers=["payment"],
        decide=decide,
        sends=[Order],
    )

    def decide(state: Basket, input: Order.Placed | Payment.Received | TimeOut) -> tuple[Basket, list[Decision]]: ...

After the workflows of Emmett (https://event-driven-io.github.io/emmett/): what `process_of` returns is a process as any
other, so everything else takes it. The state's fields are those of a frozen dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import new_class
from typing import Any, Final, TypeVar

from eventstore.aggregates.aggregate import Aggregate, command_name
from eventstore.errors import DeclarationError
from eventstore.processes.process import (
    Correlation,
    Process,
    Sending,
    compensated,
    late,
    reacts,
    replies,
    starts,
    times_out,
)
from eventstore.processes.process import Reply as Reply

S = TypeVar("S")


@dataclasses.dataclass(frozen=True, slots=True)
class TimeOut:
    """A timer that is due, as `decide` gets it.

    Examples:
        >>> def decide(state, input):
        ...     match input:
        ...         case TimeOut("payment"):
        ...             return state, [compensate("not paid in time")]
    """

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Compensated:
    """Every compensation was accepted, as `decide` gets it.

    Examples:
        >>> def decide(state, input):
        ...     match input:
        ...         case Compensated():
        ...             return state, [done()]
    """


Decision = Callable[[Process], object]
"""What `decide` returns: made by `send`, `set_timer`, `take_back`, `done` and `compensate` of this module."""


def send(aggregate_id: str, command: Callable[..., object], /, *args: Any, **kwargs: Any) -> Decision:
    """Decide to send a command.

    Examples:
        >>> return state, [undone_by(send(e.sku, Item.reserve, "o1"), Item.release, "o1")]
    """
    return lambda process: process.send(aggregate_id, command, *args, **kwargs)


def undone_by(sent: Decision, command: Callable[..., object], /, *args: Any, **kwargs: Any) -> Decision:
    """Name the command that compensates a sent one.

    Examples:
        >>> def decide(state, input):
        ...     return state, [undone_by(send("tea", Item.reserve, order_id="o1"), Item.release, order_id="o1")]
    """
    return lambda process: _sending(sent, process).undone_by(command, *args, **kwargs)


def delayed(sent: Decision, after: timedelta) -> Decision:
    """Send a command later, by this delay.

    Examples:
        >>> def decide(state, input):
        ...     return state, [delayed(send("o1", Order.cancel, reason="forgotten"), timedelta(hours=24))]
    """
    return lambda process: _sending(sent, process).delayed(after)


def expiring(sent: Decision, after: timedelta) -> Decision:
    """Send a command within this time after it is due, or never.

    Examples:
        >>> def decide(state, input):
        ...     return state, [expiring(send("tea", Item.reserve, order_id="o1"), timedelta(minutes=5))]
    """
    return lambda process: _sending(sent, process).expiring(after)


def _sending(sent: Decision, process: Process) -> Sending:
    sending = sent(process)
    if not isinstance(sending, Sending):
        raise DeclarationError(
            "only a command is compensated, delayed or expires", remedy="wrap send(…), as in undone_by(send(…), …)"
        )
    return sending


def set_timer(name: str, *, after: timedelta | None = None, at: datetime | None = None) -> Decision:
    """Decide to set a timer.

    Examples:
        >>> def decide(state, input):
        ...     return state, [set_timer("payment", after=timedelta(minutes=30))]
    """
    return lambda process: process.timeout(name, after=after, at=at)


def take_back(name: str) -> Decision:
    """Decide to cancel a timer.

    Examples:
        >>> def decide(state, input):
        ...     return state, [take_back("payment"), done()]
    """
    return lambda process: process.cancel(name)


def done() -> Decision:
    """Decide that the instance has ended.

    Examples:
        >>> def decide(state, input):
        ...     return state, [done()]
    """
    return lambda process: process.done()


def compensate(reason: str) -> Decision:
    """Decide to undo what was accepted.

    Examples:
        >>> def decide(state, input):
        ...     return state, [compensate("not paid in time")]
    """
    return lambda process: process.compensate(reason)


Decide = Callable[[S, Any], tuple[S, Sequence[Decision]]]
_EVENTS: Final = (("starts", starts), ("reacts", reacts), ("late", late))


def process_of(
    category: str,
    *,
    initial_state: Callable[[], S],
    decide: Decide[S],
    starts: Mapping[type, Correlation],
    reacts: Mapping[type, Correlation] | None = None,
    late: Mapping[type, Correlation] | None = None,
    answers: Sequence[Callable[..., object]] = (),
    timers: Sequence[str] = (),
    sends: Sequence[type[Aggregate]] = (),
    version: int = 1,
    earlier: Sequence[type[Process]] = (),
) -> type[Process]:
    """Make a process of a function.

    Args:
        category: The name of the process.
        initial_state: Returns the state before the start.
        decide: Gets the state and an event, a `Reply`, a `TimeOut` or `Compensated`. It returns the next state and
            decisions.
        starts: The events that start an instance. Each value names the instance: a field, a function, or None for the
            id of the event's stream.
        reacts: Events of running instances.
        late: Events that come after the end of an instance, or while it is compensating.
        answers: The commands whose replies `decide` gets.
        timers: The names of timers.
        sends: The aggregates that get commands.
        version: The version of this code.
        earlier: Processes of former versions, by which their instances end.

    Raises:
        DeclarationError: The state is no dataclass.

    Examples:
        >>> payment = process_of("payment_of_order", initial_state=Waiting, decide=decide, timers=["payment"],
        ...                      starts={Order.Placed: None}, reacts={Order.Paid: None})
    """
    state = type(initial_state())
    if not dataclasses.is_dataclass(state):
        raise DeclarationError(
            f"the state of {category} is a {state.__name__}, which has no listed fields",
            remedy="make it a frozen dataclass",
            place=category,
        )
    body = _state_of(initial_state())
    body |= _handlers(decide, state, {"starts": starts, "reacts": reacts or {}, "late": late or {}})
    body |= _named_handlers(decide, state, answers, timers)
    options = {"category": category, "sends": sends, "version": version, "earlier": earlier}
    made: type[Process] = new_class(category, (Process,), options, lambda namespace: namespace.update(body))
    return made


def _state_of(initial: Any) -> dict[str, Any]:
    fields = dataclasses.fields(initial)
    values = {field.name: getattr(initial, field.name) for field in fields}
    return {
        **values,
        "__annotations__": {field.name: field.type for field in fields},
        "__module__": type(initial).__module__,
    }


def _handlers(decide: Decide[Any], state: type, events: Mapping[str, Mapping[type, Correlation]]) -> dict[str, Any]:
    handlers: dict[str, Any] = {}
    for way, marking in _EVENTS:
        for event, correlation in events[way].items():
            handlers[f"{way}_{len(handlers)}"] = marking(event, id=correlation)(_deciding(decide, state, None))
    return handlers


def _named_handlers(
    decide: Decide[Any], state: type, answers: Sequence[Callable[..., object]], timers: Sequence[str]
) -> dict[str, Any]:
    handlers: dict[str, Any] = {"after_compensation": compensated(_deciding(decide, state, Compensated()))}
    for command in answers:
        handlers[f"answer_to_{command_name(command)}"] = replies(command)(_deciding(decide, state, None))
    for name in timers:
        handlers[f"timer_{name}"] = times_out(name)(_deciding(decide, state, TimeOut(name)))
    return handlers


def _deciding(decide: Decide[Any], state: type, fixed: object | None) -> Callable[..., None]:
    """A handler that lets the function decide, about its input or about what is always the same."""

    def run(process: Process, given: object) -> None:
        before = state(**{field.name: getattr(process, field.name) for field in dataclasses.fields(state)})
        after, decisions = decide(before, given)
        for field in dataclasses.fields(state):
            setattr(process, field.name, getattr(after, field.name))
        for decision in decisions:
            decision(process)

    if fixed is None:
        return lambda self, given: run(self, given)
    return lambda self: run(self, fixed)
