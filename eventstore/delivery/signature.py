"""A handler's parameters read once: which of them is the event, the recorded event, the transaction."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

from eventstore.aggregates.aggregate import types_as_stored
from eventstore.delivery.arrivals import Delivery
from eventstore.errors import DeclarationError
from eventstore.event_types import EventType, event_type_of, is_event_class
from eventstore.messages import RecordedEvent

if TYPE_CHECKING:
    from eventstore.delivery.arrivals import Arrival

# The name is the rule: `Connection` is often imported for type checkers only, and then has no value here.
_TRANSACTION: Final = "tx"
_CALLABLE_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class HandlerSignature:
    """Names of the parameters; `types` None takes every event as it was recorded, `many` takes lists.

    `awaits` says that the handler is a coroutine function. `types` are the types by the names they are stored under:
    those of the handler's classes, and those that an upcaster may make such events of.
    """

    event: str
    recorded: str | None
    tx: bool
    many: bool
    types: Mapping[str, EventType] | None
    classes: frozenset[type] = frozenset()
    awaits: bool = False
    delivery: str | None = None

    @property
    def needs_recorded(self) -> bool:
        """Whether the handler asks for events as they were recorded."""
        return self.recorded is not None or self.types is None

    def events(self, arrival: Arrival) -> list[Any]:
        """Return the current events of a record that the handler takes. Raises SchemaError."""
        kind = (self.types or {})[str(arrival.type)]
        events = kind.events(arrival.schema_version, arrival.data)
        return [event for event in events if type(event) in self.classes]

    def arguments(self, event: Any, recorded: Any, tx: Any) -> dict[str, Any]:
        """Return what to call the handler with."""
        given = {self.event: event}
        if self.recorded is not None:
            given[self.recorded] = recorded
        if self.tx:
            given[_TRANSACTION] = tx
        if self.delivery is not None:
            given[self.delivery] = Delivery()
        return given


def signature_of(handler: Callable[..., object], names: Mapping[str, Any]) -> HandlerSignature:
    """Read a handler's annotations, `names` being those visible where it is defined; DeclarationError."""
    place = getattr(handler, "__qualname__", repr(handler))
    given = _hints(handler, names, place)
    delivery = next((name for name, hint in given.items() if _classes(hint) == (Delivery,)), None)
    hints = {name: hint for name, hint in given.items() if name != delivery}
    many = {name: get_origin(hint) is list for name, hint in hints.items()}
    classes = {name: _classes(hint) for name, hint in hints.items()}
    recorded = [name for name, hinted in classes.items() if hinted == (RecordedEvent,)]
    typed = [name for name, hinted in classes.items() if hinted and all(map(is_event_class, hinted))]
    _check(place, hints, typed, recorded, many)
    if delivery is not None and any(many.values()):
        raise _mistake(place, "takes a delivery and a list", "take one event: each has a delivery of its own")
    event = (typed or recorded)[0]
    return HandlerSignature(
        event=event,
        recorded=recorded[0] if typed and recorded else None,
        tx=_TRANSACTION in inspect.signature(handler).parameters,
        many=many[event],
        types=_types(classes[event], place) if typed else None,
        classes=frozenset(classes[event]) if typed else frozenset(),
        awaits=inspect.iscoroutinefunction(handler),
        delivery=delivery,
    )


def _hints(handler: Callable[..., object], names: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the type of each parameter but `tx`."""
    parameters = inspect.signature(handler).parameters
    for parameter in parameters.values():
        if parameter.kind not in _CALLABLE_BY_NAME:
            raise _mistake(place, f"takes {parameter}", "name each parameter: handlers are called by keyword")
    required = [name for name in parameters if name != _TRANSACTION]
    missing = [name for name in required if parameters[name].annotation is inspect.Parameter.empty]
    if missing:
        raise _mistake(place, f"has parameter {missing[0]!r} without annotation", "annotate it with its event class")
    written = types.SimpleNamespace(__annotations__={name: parameters[name].annotation for name in required})
    try:
        return get_type_hints(written, getattr(handler, "__globals__", {}), dict(names))
    except (NameError, AttributeError) as error:
        raise _mistake(place, f"has an annotation that cannot be found: {error}", "import it in the module") from None


def _classes(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is list:
        (hint,) = get_args(hint)
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _check(
    place: str, hints: Mapping[str, Any], typed: list[str], recorded: list[str], many: Mapping[str, bool]
) -> None:
    foreign = [name for name in hints if name not in (*typed, *recorded)]
    if foreign:
        raise _mistake(
            place,
            f"has parameter {foreign[0]!r} of type {hints[foreign[0]]!r}, which is no event",
            "use a class made by @event, several joined by |, RecordedEvent, a list of one of these, Delivery, or `tx`",
        )
    if len(typed) > 1 or len(recorded) > 1 or not hints:
        raise _mistake(place, "does not take one event", "take one event, with RecordedEvent and tx")
    if len(set(many.values())) > 1:
        raise _mistake(place, "takes a list and a single event", "take lists of both, or one of each")


def _types(classes: tuple[Any, ...], place: str) -> dict[str, EventType]:
    if len({event_type_of(cls).name for cls in classes}) < len(classes):
        raise _mistake(place, "takes two classes of one event type", "leave one of them out")
    return types_as_stored(classes)


def _mistake(place: str, what: str, remedy: str) -> DeclarationError:
    return DeclarationError(f"handler {place} {what}", remedy=remedy, place=place)
