"""Aggregates written as functions: an initial state, `evolve`, and one function a command.

After the decider of Jérémie Chassaing (https://thinkbeforecoding.com/post/2021/12/17/functional-event-sourcing-decider).
What `decider` returns is an aggregate as any other, so everything else of the package takes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import UnionType, new_class
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from eventstore.aggregates.aggregate import Aggregate, claim_command, source_of
from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.event_types import is_event_class, visible_names
from eventstore.fields.field_types import RecordClass, hints_of, record_class

P = ParamSpec("P")
S = TypeVar("S")


class FunctionalAggregate(Aggregate, Generic[S]):
    """An aggregate whose rules are functions. `value` is the state as the functions returned it.

    The state's fields are those of `value`: a dataclass, pydantic model or msgspec struct.

    Examples:
        >>> account = decider("account", initial_state=Account, evolve=evolve, decide=[open_account, deposit])
        >>> bank.load(account, "a1").value.owner
        'Ada'
    """

    _initial: ClassVar[Callable[..., Any]]
    _evolve: ClassVar[Callable[[Any, Any], Any]]
    _ways: ClassVar[RecordClass]
    _hints: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, id: str = "") -> None:
        super().__init__(id)
        self.__dict__["_value"] = self._initial()

    @property
    def value(self) -> S:
        """The state. The functions return a new one for every event."""
        value: S = self.__dict__["_value"]
        return value

    @classmethod
    def state_fields(cls) -> dict[str, Any]:
        """Return the type of each field of `value`, with `Annotated`, in the order of declaration."""
        return {name: cls._hints[name] for name in cls._ways.defaults}

    @classmethod
    def restored(cls, values: Mapping[str, Any], *, id: str, version: int) -> Self:
        """Return the state that `state()` gave as values, at that version."""
        state = cls(id)
        state.__dict__.update(_value=cls._ways.construct(dict(values)), version=version)
        return state

    def state(self) -> dict[str, Any]:
        """Return the value of each state field."""
        return dict(self._ways.values(self.__dict__["_value"]))

    @classmethod
    def evolve(cls, state: Self, event: object) -> Self:
        """Let the state take in one event and count its version. Raises UnknownEventType for a foreign event."""
        if type(event) not in cls._handlers:
            raise cls._foreign(event)
        value = cls._evolve(state.__dict__["_value"], event)
        if value is None:
            raise DeclarationError(
                f"evolve of {cls.category} returned no state for {type(event).__name__}",
                remedy="return the state from every branch, unchanged where an event does not matter",
                place=cls.category,
            )
        state.__dict__["_value"] = value
        state.version += 1
        return state

    @classmethod
    def decide(
        cls, state: Any, command: Callable[Concatenate[Any, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> list[object]:
        """Return the events that a command leads to, or raise Refused. The state has evolved by them already."""
        emitted = _events(command(state.value, *args, **kwargs))
        for event in emitted:
            cls.evolve(state, event)
        return emitted

    @classmethod
    def state_source(cls) -> str:
        """Return the Python source of what derives the state."""
        return "".join(source_of(part) for part in (cls._evolve, type(cls._initial())))


def decider(
    category: str,
    *,
    initial_state: Callable[[], S],
    evolve: Callable[[S, Any], S],
    decide: Sequence[Callable[..., object]] = (),
    state_version: int = 0,
) -> type[FunctionalAggregate[S]]:
    """Make an aggregate of functions.

    Args:
        category: The name of the streams.
        initial_state: Returns the state before the first event.
        evolve: Returns the next state. The annotation of its second parameter, such as `Opened | Deposited`, names the
            events.
        decide: The commands. Each takes the state and its own arguments, and returns an event, several or none, or
            raises Refused.
        state_version: Raise it when `evolve` derives another state from the same events.

    Raises:
        DeclarationError: The annotation names no events, the state has no fields, or a function is another aggregate's
            command.

    Examples:
        >>> Account = decider("account", initial_state=Open, evolve=evolve, decide=[deposit])
        >>> dispatcher.send("1", deposit, 10)
    """
    names, state = visible_names(inspect.currentframe()), type(initial_state())
    events = _events_of(evolve, names, category)
    namespace: dict[str, Any] = {
        "__module__": evolve.__module__,
        "__doc__": evolve.__doc__,
        "_initial": staticmethod(initial_state),
        "_evolve": staticmethod(evolve),
        "_ways": _ways_of(state, category),
        "_hints": hints_of(state, names, f"the state of {category}", place=category),
        **{event.__name__: event for event in events},
    }
    options = {"category": category, "state_version": state_version}
    made: Any = new_class(category, (FunctionalAggregate,), options, lambda body: body.update(namespace))
    made.commands = {function.__name__: claim_command(function, made) for function in decide}
    return made  # type: ignore[no-any-return]


def _events_of(evolve: Callable[..., object], names: Mapping[str, Any], category: str) -> Sequence[type]:
    annotations, hint = list(inspect.signature(evolve).parameters), None
    if len(annotations) > 1:
        hint = hints_of(evolve, names, f"evolve of {category}", place=category).get(annotations[1])
    events = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if all(is_event_class(event) for event in events):
        return events
    raise DeclarationError(
        f"evolve of {category} does not say which events it takes",
        remedy="annotate its second parameter with them: def evolve(state: Account, event: Opened | Closed)",
        place=f"{evolve.__module__}.{evolve.__qualname__}",
    )


def _ways_of(state: type, category: str) -> RecordClass:
    ways = record_class(state)
    if ways is not None:
        return ways
    raise DeclarationError(
        f"the state of {category} is a {state.__name__}, whose fields cannot be listed",
        remedy="make it a frozen dataclass",
        place=category,
    )


def _events(returned: object) -> list[object]:
    """What a command returned, as a list: nothing, one event, or several."""
    if returned is None:
        return []
    if is_event_class(type(returned)):
        return [returned]
    if isinstance(returned, Iterable):
        return list(returned)
    raise InvalidEventData(
        f"a command returned {returned!r}, which is no event",
        remedy="return an event, several, or None. Raise Refused to say no",
    )
