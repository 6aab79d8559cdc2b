"""Given events, when something comes or time passes, then commands, timers, a state: a process tested without a store.

    given(Fulfilment, Order.Placed(…), id="o1").when(clock.advance("31m")).then(
        commands=[command("tea", Item.release, order_id="o1")], timers=[], state={"paid": False}
    )

Steps are recorded and read back as a store would do it, and a timer that is overdue fires before what comes next.
"""

# ruff: noqa: S101  # assertions are what this module is for

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self
from uuid import UUID, uuid5

from eventstore.aggregates.aggregate import command_name
from eventstore.aggregates.command_schemas import encode_arguments
from eventstore.errors import InvalidEventData
from eventstore.event_types import event_type_of
from eventstore.fields.plain_json import dump_plain
from eventstore.fields.serialization import AvroDecoder
from eventstore.processes.process import Process, Reply
from eventstore.processes.records import (
    ACCEPTED,
    ENDED,
    EVENT,
    EXPIRED,
    REFUSED,
    REPLY,
    TIMEOUT,
    Cause,
    SentCommand,
    SetTimer,
)
from eventstore.processes.stepping import Input, step

__all__ = ["ProcessScenario", "accepted", "clock", "command", "expired", "given", "refused"]

_START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
_IDS: Final = UUID("2f1c7f5e-5a1b-4b0e-9a7a-0d4b8b9a7c11")
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class ExpectedCommand:
    """A command as a test expects it."""

    to: str
    command: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Passed:
    """Time that passes."""

    time: timedelta


@dataclass(frozen=True, slots=True)
class Answered:
    """What a command of a name is answered with."""

    reply: Reply


class clock:  # a word of the test's sentence
    """Time in tests of processes.

    Examples:
        >>> ready = given(Fulfilment, placed, accepted(Item.reserve), id="o1")
        >>> ready.when(clock.advance("31m")).then(commands=[command("tea", Item.release, order_id="o1")])
    """

    @staticmethod
    def advance(duration: str | timedelta) -> Passed:
        """Let time pass: `31m`, `1h 30m`, or a timedelta."""
        return Passed(duration if isinstance(duration, timedelta) else _duration(duration))


def command(aggregate_id: str, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> ExpectedCommand:
    """Return a command as `self.send` takes it, to compare with what was sent.

    Examples:
        >>> ready = given(Fulfilment, placed, accepted(Item.reserve), id="o1")
        >>> ready.when(paid).then(commands=[command("o1", Order.ship)])
    """
    return ExpectedCommand(aggregate_id, command_name(function), encode_arguments(function, args, kwargs))


def accepted(function: Callable[..., object]) -> Answered:
    """Say that the first waiting command of this kind was accepted.

    Examples:
        >>> given(Fulfilment, placed).when(accepted(Item.reserve)).then(status="running")
    """
    return Answered(Reply(command_name(function), ACCEPTED))


def refused(function: Callable[..., object], reason: str = "refused") -> Answered:
    """Say that the first waiting command of this kind was refused.

    Examples:
        >>> given(Fulfilment, placed, refused(Item.reserve, "nothing left"), id="o1").then(status="compensated")
    """
    return Answered(Reply(command_name(function), REFUSED, reason))


def expired(function: Callable[..., object]) -> Answered:
    """Say that the first waiting command of this kind was not sent in time.

    Examples:
        >>> given(Fulfilment, placed, expired(Item.reserve), id="o1").then(status="compensated")
    """
    return Answered(Reply(command_name(function), EXPIRED))


def given(process: type[Process], *past: object, id: str = "1") -> ProcessScenario:
    """Return an instance after these events, replies and times, in this order.

    Returns:
        A scenario. `when` delivers events and replies and lets time pass. `then` checks `commands`, and `timers`,
        `state` and `status` if they are given.

    Examples:
        >>> given(Shipping, Order.Placed(sku="s1")).when(refused(Item.reserve)).then(
        ...     commands=[command("1", Order.cancel, reason="sold out")]
        ... )
    """
    scenario = ProcessScenario(process, id)
    for one in past:
        scenario = scenario.when(one)
    return replace(scenario, commands=())


@dataclass(frozen=True)
class ProcessScenario:
    """An instance with a past. Each `when` returns a new scenario and leaves this one unchanged.

    Examples:
        >>> scenario = given(Fulfilment, placed)
        >>> scenario.when(paid).then(timers=[])
    """

    kind: type[Process]
    id: str
    steps: tuple[Process.Stepped, ...] = ()
    timers: tuple[SetTimer, ...] = ()
    pending: tuple[SentCommand, ...] = ()
    commands: tuple[SentCommand, ...] = ()
    now: datetime = field(default=_START)

    def when(self, *what: object) -> ProcessScenario:
        """Deliver events and replies, and let time pass. `then` sees everything that they lead to."""
        scenario: ProcessScenario = replace(self, commands=())
        for one in what:
            scenario = _after(scenario, one)
        return scenario

    def then(
        self,
        *,
        commands: Sequence[ExpectedCommand] = (),
        timers: Sequence[str] | None = None,
        state: dict[str, Any] | None = None,
        status: str | None = None,
    ) -> Self:
        """Check that exactly these commands were sent, and check timers, fields and status if they are given."""
        sent = [ExpectedCommand(one.to, one.command, one.arguments) for one in self.commands]
        assert sent == list(commands), _difference("commands", list(commands), sent)
        if timers is not None:
            names = sorted(timer.name for timer in self.timers)
            assert names == sorted(timers), _difference("timers", sorted(timers), names)
        process = self.process()
        if state is not None:
            actual = {name: process.state()[name] for name in state}
            assert actual == state, _difference("state", state, actual)
        assert status in (None, process.standing.status), _difference("status", status, process.standing.status)
        return self

    def process(self) -> Process:
        """Return the instance as its steps made it."""
        process = self.kind(self.id)
        for stepped in self.steps:
            self.kind.evolve(process, stepped)
        return process


def _after(scenario: ProcessScenario, one: object) -> ProcessScenario:
    if isinstance(one, Passed):
        return _passed(scenario, scenario.now + one.time)
    if isinstance(one, Answered):
        return _answered(scenario, one.reply)
    kind = event_type_of(one)
    plain = dict(kind.to_plain(one))
    cause = _cause(scenario, EVENT, kind.name, data=dump_plain(plain), version=kind.version)
    by_instance = scenario.kind.reactions.addressed(kind.name, kind.version, plain, scenario.id)
    if scenario.id not in by_instance:
        raise InvalidEventData(
            f"{kind.name} is not for {scenario.kind.__qualname__} {scenario.id!r}, but for "
            f"{', '.join(by_instance) or 'none'}",
            remedy="give it an event that it reacts to, with the id of this instance",
        )
    return _stepped(scenario, Input(cause, by_instance[scenario.id]))


def _passed(scenario: ProcessScenario, until: datetime) -> ProcessScenario:
    while due := sorted((timer for timer in scenario.timers if timer.due <= until), key=lambda timer: timer.due):
        timer = due[0]
        left = tuple(one for one in scenario.timers if one is not timer)
        scenario = replace(scenario, now=max(timer.due, scenario.now), timers=left)
        scenario = _stepped(scenario, Input(_cause(scenario, TIMEOUT, timer.name)))
    return replace(scenario, now=until)


def _answered(scenario: ProcessScenario, reply: Reply) -> ProcessScenario:
    waiting = [one for one in scenario.pending if one.command == reply.command]
    if not waiting:
        raise InvalidEventData(
            f"{scenario.kind.__qualname__} has sent no {reply.command} that waits for an answer",
            remedy="answer a command that it has sent",
        )
    first = waiting[0]
    scenario = replace(scenario, pending=tuple(one for one in scenario.pending if one is not first))
    if reply.accepted and not first.answered:
        return scenario  # as a worker does it: nothing waits for the reply
    data = dump_plain({"outcome": reply.outcome, "reason": reply.reason})
    cause = replace(_cause(scenario, REPLY, reply.command, data=data), id=first.id)
    return _stepped(scenario, Input(cause))


def _stepped(scenario: ProcessScenario, given: Input) -> ProcessScenario:
    stepped = step(scenario.process(), given, now=scenario.now)
    if stepped is None:
        return scenario
    stepped = _through_avro(stepped)
    removed = {*stepped.cancelled, *(timer.name for timer in stepped.timers)}
    ends = stepped.withdrawn or stepped.status in ENDED
    left = () if ends else tuple(timer for timer in scenario.timers if timer.name not in removed)
    pending = () if stepped.withdrawn else scenario.pending
    return replace(
        scenario,
        steps=(*scenario.steps, stepped),
        timers=(*left, *stepped.timers),
        pending=(*pending, *stepped.sent),
        commands=(*scenario.commands, *stepped.sent),
    )


def _cause(scenario: ProcessScenario, kind: str, name: str, *, data: str = "{}", version: int = 1) -> Cause:
    number = uuid5(_IDS, f"{kind} {name} {len(scenario.steps)} {scenario.now.isoformat()}")
    place = f"{name.partition('.')[0]}-{scenario.id}@0"  # an event without an id in it is of a stream with this one
    return Cause(kind=kind, name=name, id=number, place=place, time=scenario.now, schema_version=version, data=data)


def _through_avro(stepped: Process.Stepped) -> Process.Stepped:
    declared = event_type_of(stepped)
    read: Process.Stepped = declared.from_plain(
        AvroDecoder(lambda _: declared.registered).decode(declared.encode(stepped))[1]
    )
    return read


def _duration(text: str) -> timedelta:
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise InvalidEventData(f"{text!r} is no duration", remedy="write it as 90s, 31m, 1h 30m or 2d")
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())


def _difference(what: str, expected: object, actual: object) -> str:
    return f"{what}\n  expected: {expected}\n  found:    {actual}"
