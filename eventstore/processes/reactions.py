"""Which inputs a process takes, and which of its methods handles each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from eventstore.aggregates.aggregate import command_name, owner_of, types_as_stored
from eventstore.errors import DeclarationError
from eventstore.event_types import EventType, event_type_of, is_event_class
from eventstore.fields.casting import kind_of
from eventstore.fields.serialization import placeholder
from eventstore.identifiers import StreamName
from eventstore.personal.sealing import Disclosed, Erased

H = TypeVar("H", bound=Callable[..., object])
Correlation = str | Callable[[Any], str | None] | None
"""How an event names the instance: a field, a function of the event (None: no instance), or the id of its stream."""

_MARKS: Final = "__factfold_reactions__"
_IDS: Final = ("string", "long", "uuid")
STARTS, REACTS, LATE, REPLIES, TIMES_OUT, COMPENSATED = (
    "starts",
    "reacts",
    "late",
    "replies",
    "times_out",
    "compensated",
)


@dataclass(frozen=True, slots=True)
class _Mark:
    way: str
    what: Any
    id: Correlation = None


def starts(event: type, /, *, id: Correlation = None) -> Callable[[H], H]:
    """Start an instance with this event.

    Args:
        event: The event class.
        id: How the event names the instance: a field, or a function of the event. By default the id of the event's
            stream.

    Examples:
        >>> @starts(Order.Placed)
        ... def placed(self, event: Order.Placed) -> None: ...
    """
    return _marking(_Mark(STARTS, event, id))


def reacts(event: type, /, *, id: Correlation = None) -> Callable[[H], H]:
    """Handle this event while the instance runs. An event that comes before the start is stored, and handled after it.

    Args:
        event: The event class.
        id: How the event names the instance: a field, or a function of the event. By default the id of the event's
            stream.

    Examples:
        >>> @reacts(Payment.Received, id="order_id")
        ... def received(self, event: Payment.Received) -> None: ...
    """
    return _marking(_Mark(REACTS, event, id))


def late(event: type, /, *, id: Correlation = None) -> Callable[[H], H]:
    """Handle this event if it comes after the end of the instance, or while the instance is compensating.

    Args:
        event: The event class.
        id: How the event names the instance: a field, or a function of the event. By default the id of the event's
            stream.

    Examples:
        >>> @late(Payment.Received, id="order_id")
        ... def paid_too_late(self, event: Payment.Received) -> None: ...
    """
    return _marking(_Mark(LATE, event, id))


def replies(command: Callable[..., object], /) -> Callable[[H], H]:
    """Handle the `Reply` to a command that this process sent.

    Examples:
        >>> @replies(Item.reserve)
        ... def reserved(self, reply: Reply) -> None: ...
    """
    return _marking(_Mark(REPLIES, command))


def times_out(name: str, /) -> Callable[[H], H]:
    """Handle the timer of this name, which `self.timeout(name, after=…)` sets.

    Examples:
        >>> @times_out("payment")
        ... def unpaid(self) -> None:
        ...     self.compensate("not paid within 30 minutes")
    """
    return _marking(_Mark(TIMES_OUT, name))


def compensated(method: H, /) -> H:
    """Call this method when every compensation was accepted.

    Examples:
        >>> @compensated
        ... def undone(self) -> None:
        ...     self.send(self.id, Order.cancel, reason="given up")
    """
    return _marking(_Mark(COMPENSATED, COMPENSATED))(method)


def is_handler(value: object) -> bool:
    """Say whether a value of a class body handles an input."""
    return hasattr(value, _MARKS)


def _marking(mark: _Mark) -> Callable[[H], H]:
    def marked(method: H) -> H:
        setattr(method, _MARKS, (*getattr(method, _MARKS, ()), mark))
        return method

    return marked


@dataclass(frozen=True, slots=True)
class Reaction:
    """A method, whether it takes the input, and how an event names the instance."""

    method: Callable[..., object]
    takes_input: bool
    id: Correlation = None

    def call(self, process: object, given: object) -> None:
        """Call the method."""
        if self.takes_input:
            self.method(process, given)
        else:
            self.method(process)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A current event, and the ways by which it names its instance."""

    event: object
    ways: frozenset[str]


@dataclass(frozen=True, slots=True)
class Reactions:
    """All reactions of a process, by what they answer."""

    events: Mapping[type, Mapping[str, Reaction]] = field(default_factory=dict)
    replies: Mapping[str, Reaction] = field(default_factory=dict)
    timers: Mapping[str, Reaction] = field(default_factory=dict)
    compensated: Reaction | None = None
    kinds: Mapping[str, EventType] = field(default_factory=dict)
    categories: frozenset[str] = frozenset()

    def addressed(
        self, stored_type: str, schema_version: int, data: Mapping[str, Any], stream_id: str
    ) -> dict[str, list[Arrived]]:
        """Return the current events of a stored one, by the instance of each. Raises the errors of `events`."""
        kind = self.kinds.get(stored_type)
        if kind is None:
            return {}
        by_instance: dict[str, list[Arrived]] = {}
        for event in kind.events(schema_version, impersonal(kind, data)):
            named = {
                way: self._instance(one, event, stream_id) for way, one in self.events.get(type(event), {}).items()
            }
            for instance in sorted({name for name in named.values() if name is not None}):
                ways = frozenset(way for way, name in named.items() if name == instance)
                by_instance.setdefault(instance, []).append(Arrived(event, ways))
        return by_instance

    def again(
        self, name: str, schema_version: int, data: Mapping[str, Any], place: str, instance: str
    ) -> list[Arrived]:
        """Return the events that a recorded input was for an instance, by its place `stream@version`."""
        stream_id = StreamName.parse(place.rpartition("@")[0]).id
        return self.addressed(name, schema_version, data, stream_id).get(instance, [])

    def _instance(self, reaction: Reaction, event: object, stream_id: str) -> str | None:
        if reaction.id is None:
            return stream_id
        named = getattr(event, reaction.id) if isinstance(reaction.id, str) else reaction.id(event)
        return None if named is None else str(named)


def impersonal(kind: EventType, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of an event with placeholders for personal ones: what a process records outlives an erasure.

    A field is personal if the event's writer declared it, under its earlier name, or if the current class declares it.
    Data that a process recorded has marks.
    """
    written = data.personal if isinstance(data, Disclosed) else {}
    declared = {**kind.registered.personal, **written}
    shown = {name: placeholder(one) for name, one in declared.items() if name in data}
    shown |= {name: value.placeholder for name, value in data.items() if type(value) is Erased}
    return Disclosed({**data, **shown}, shown) if shown else data


def read_reactions(owner: type) -> Reactions:
    """Read the reactions of a process; DeclarationError names what cannot work."""
    events: dict[type, dict[str, Reaction]] = {}
    named: dict[str, dict[str, Reaction]] = {REPLIES: {}, TIMES_OUT: {}, COMPENSATED: {}}
    for name, method in _methods(owner):
        for mark in getattr(method, _MARKS, ()):
            reaction = Reaction(method, _takes_input(method, owner), mark.id)
            if mark.way in named:
                _put(named[mark.way], _name_of(mark), reaction, owner, name)
            else:
                _require_event(mark, owner, name)
                _put(events.setdefault(mark.what, {}), mark.way, reaction, owner, name)
    kinds = types_as_stored(events)
    categories = frozenset(_category(event, owner) for event in events)
    end = named[COMPENSATED].get(COMPENSATED)
    return Reactions(events, named[REPLIES], named[TIMES_OUT], end, kinds, categories)


def _methods(owner: type) -> Iterable[tuple[str, Callable[..., object]]]:
    methods = {name: value for base in reversed(owner.__mro__) for name, value in vars(base).items() if callable(value)}
    return methods.items()


def _takes_input(method: Callable[..., object], owner: type) -> bool:
    if inspect.iscoroutinefunction(method):
        raise _mistake(owner, method.__name__, "is a coroutine function", "write it as def: a step waits for nothing")
    parameters = list(inspect.signature(method).parameters)
    if len(parameters) > 2:
        raise _mistake(owner, method.__name__, "takes more than its input", "take self and the input, or self alone")
    return len(parameters) == 2


def _name_of(mark: _Mark) -> str:
    return command_name(mark.what) if mark.way == REPLIES else str(mark.what)


def _require_event(mark: _Mark, owner: type, method: str) -> None:
    if not is_event_class(mark.what):
        raise _mistake(owner, method, f"is to handle {mark.what!r}, which is no event", "name a class made by @event")
    kind = event_type_of(mark.what)
    ids = [field.name for field in kind.fields if field.personal is None and kind_of(field.type.avro) in _IDS]
    if isinstance(mark.id, str) and mark.id not in ids:
        raise _mistake(
            owner, method, f"finds its instance by {mark.id!r}, which is no clear text, number or UUID of {kind.name}",
            f"use one of its fields ({', '.join(ids) or 'none'}) or a function, or leave id out for that of the stream",
        )  # fmt: skip


def _put(reactions: dict[str, Reaction], key: str, reaction: Reaction, owner: type, method: str) -> None:
    if key in reactions and reactions[key].method is not reaction.method:
        raise _mistake(
            owner, method, f"handles the same as {reactions[key].method.__name__}", "handle each input by one method"
        )
    reactions[key] = reaction


def _category(event: type, owner: type) -> str:
    aggregate = owner_of(event)
    if aggregate is None:
        raise _mistake(owner, event.__qualname__, "belongs to no aggregate", "declare the event inside an aggregate")
    return aggregate.category


def _mistake(owner: type, method: str, what: str, remedy: str) -> DeclarationError:
    place = f"{owner.__qualname__}.{method}"
    return DeclarationError(f"{place} {what}", remedy=remedy, place=place)
