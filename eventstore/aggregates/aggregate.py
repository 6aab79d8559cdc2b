"""Aggregates: decide refuses or emits, evolve remembers; the object itself is the state.

Every style of writing one offers the same three functions, and nothing else of the package asks for more:

    initial_state(id) → state        evolve(state, event) → state        decide(state, command, …) → events

What a function or a class does, as a text that changes with it: its source, or its code where there is no source.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from functools import cache, partial, wraps
from types import CodeType
from typing import Any, ClassVar, Concatenate, Final, NoReturn, ParamSpec, Self, TypeVar, get_origin
from uuid import UUID

from eventstore.errors import DeclarationError, Refused, UnknownEventType
from eventstore.event_types import (
    EventType,
    event_type_of,
    finish_declaration,
    is_event_class,
    unknown_event_type,
    visible_names,
)
from eventstore.fields.field_types import hints_of, record_class
from eventstore.fields.upcasting import FIRST
from eventstore.identifiers import NO_VERSION, StreamName, check_category, snake_case
from eventstore.store import RecordedEvent


def source_of(declared: Any) -> str:
    """Return the text of a function or a class; DeclarationError for what has neither text nor code.

    It is the one of the first time: the file may change while the process runs what it has loaded. What has no file, as
    in `python -` or in a shell, is known by its code.
    """
    return _source_of(declared)


@cache
def _source_of(declared: Any) -> str:
    try:
        return inspect.getsource(declared)
    except (OSError, TypeError):
        codes = _codes_of(declared)
    if not codes:
        raise DeclarationError(
            f"{declared!r} has neither a source text nor code, and a change of it would not show",
            remedy="write it as a function",
        )
    return "\n".join(map(_compiled, codes))


def _codes_of(declared: Any) -> list[CodeType]:
    parts = vars(declared).values() if isinstance(declared, type) else [inspect.unwrap(declared)]
    return [code for part in parts if isinstance(code := getattr(part, "__code__", None), CodeType)]


def _compiled(code: CodeType) -> str:
    constants = (_compiled(one) if isinstance(one, CodeType) else _constant(one) for one in code.co_consts)
    return "|".join([code.co_name, code.co_code.hex(), *code.co_names, *code.co_varnames, *constants])


def _constant(value: object) -> str:
    """A constant, in the same order in each process."""
    return str(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", bound="Aggregate")

_COMMAND: Final = "__factfold_command__"
_OWNER: Final = "__factfold_aggregate__"


def command(method: Callable[P, R]) -> Callable[P, R]:
    """Mark a method as a command: it reads the state, then refuses or emits events.

    Examples:
        >>> @command
        ... def pay(self, *, amount: int) -> None:
        ...     if self.status != "placed":
        ...         self.refuse(f"an order that is {self.status} cannot be paid")
        ...     self.emit(self.Paid(amount=amount))
    """
    setattr(method, _COMMAND, method.__name__)
    return method


class Aggregate:
    """A stream's state and its rules. A subclass declares fields, events, commands and `on_…` handlers.

    Class keywords: `category` names the streams, by default the class name in snake case. Raise `state_version` when
    the handlers derive another state from the same events: aggregate snapshots taken before are then ignored. A changed
    set of fields needs no new `state_version`.

    Attributes:
        id: The part of the stream's name after the category.
        version: The version of the last event, -1 before the first.
        pending: Events that the current command emitted and that are not stored yet.

    Examples:
        >>> class Order(Aggregate):
        ...     status: str = "new"
        ...     @event
        ...     class Paid: amount: int
        ...     def on_paid(self, e: Paid) -> None: self.status = "paid"
    """

    category: ClassVar[str]
    state_version: ClassVar[int] = 0
    event_types: ClassVar[Mapping[str, EventType]] = {}
    commands: ClassVar[Mapping[str, Callable[..., object]]] = {}

    id: str
    version: int
    pending: list[object]

    own_names: ClassVar[frozenset[str]] = frozenset()

    _stored_types: ClassVar[Mapping[str, EventType]] = {}
    _handlers: ClassVar[Mapping[type, Callable[[Any, Any], object] | None]] = {}
    _fields: ClassVar[Mapping[str, Any]] = {}
    _constants: ClassVar[Mapping[str, Any]] = {}
    _fresh: ClassVar[Mapping[str, Callable[[], Any]]] = {}

    def __init_subclass__(
        cls, *, category: str | None = None, state_version: int | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if state_version is not None:
            cls.state_version = state_version
        cls.category = check_category(category or snake_case(cls.__name__))
        _check_names(cls)
        cls._fields = _state_fields(cls, visible_names(inspect.currentframe()))
        defaults = {name: getattr(cls, name) for name in cls._fields}
        cls._fresh, cls._constants = part_defaults(cls.__qualname__, defaults)
        cls.event_types = _event_types(cls)
        cls._stored_types = _stored_types(cls)
        cls._handlers = _handlers(cls)
        cls.commands = _commands(cls)

    def __init__(self, id: str = "") -> None:
        own = self.__dict__
        own.update(self._constants)
        for name, make in self._fresh.items():
            own[name] = make()
        own["id"], own["version"], own["pending"] = id, NO_VERSION, []

    @classmethod
    def initial_state(cls, id: str = "") -> Self:
        """Return the state before the first event."""
        return cls(id)

    @classmethod
    def restored(cls, values: Mapping[str, Any], *, id: str, version: int) -> Self:
        """Return the state that `state()` gave as values.

        Args:
            values: The values of the state's fields.
            id: The aggregate's id.
            version: The version of the last event in that state.
        """
        state = cls(id)
        state.__dict__.update({name: values[name] for name in cls._fields if name in values})
        state.__dict__["version"] = version
        return state

    @classmethod
    def state_fields(cls) -> dict[str, Any]:
        """Return the type of each state field, with `Annotated`, in the order of declaration."""
        return dict(cls._fields)

    def state(self) -> dict[str, Any]:
        """Return the value of each state field."""
        own = self.__dict__
        return {name: own[name] for name in self._fields}

    @classmethod
    def evolve(cls, state: Self, event: object) -> Self:
        """Let the state take in one event and count its version.

        Raises:
            UnknownEventType: The event belongs to another aggregate.
        """
        try:
            handler = cls._handlers[type(event)]
        except KeyError:
            raise cls._foreign(event) from None
        if handler is not None:
            handler(state, event)
        state.version += 1
        return state

    @classmethod
    def evolve_plain(
        cls, state: Self, type_name: str, values: Mapping[str, Any], *, schema_version: int | None = None
    ) -> Self:
        """Evolve by a stored event in plain values, as Avro gives them. The version grows by one.

        Args:
            state: The state to evolve.
            type_name: The event type, current or former.
            values: The event's fields.
            schema_version: The version of the class that wrote the event, by default the current one.
        """
        kind, version = cls.stored_type(type_name), state.version
        for event in kind.events(schema_version or kind.version, values):
            cls.evolve(state, event)
        state.version = version + 1
        return state

    @classmethod
    def fold(cls, state: Self, events: Iterable[RecordedEvent]) -> Self:
        """Evolve by recorded events of this aggregate's stream, in version order."""
        for recorded in events:
            for event in cls.events_of(recorded):
                cls.evolve(state, event)
            state.version = recorded.version
        return state

    @classmethod
    def events_of(cls, recorded: RecordedEvent) -> list[Any]:
        """Return the current form of a recorded event: one object of its class, unless an upcaster splits it.

        Raises:
            UnknownEventType: No class of the aggregate has this event type.
            SchemaError: An upcaster cannot read the event.
        """
        return cls.stored_type(recorded.type).events(recorded.schema_version, recorded.data)

    @classmethod
    def decide(
        cls, state: Any, command: Callable[Concatenate[Any, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> list[object]:
        """Return the events that a command leads to. The state has evolved by them already.

        Discard the state after Refused: it may hold events that the command emitted before it refused.

        Raises:
            Refused: The command refused.
        """
        command(state, *args, **kwargs)
        emitted: list[object] = state.pending
        state.pending = []
        return emitted

    def emit(self, event: object) -> None:
        """Emit an event from a command. The state evolves at once, and the rest of the command sees it."""
        self.evolve(self, event)
        self.pending.append(event)

    def refuse(self, reason: str) -> NoReturn:
        """Refuse the command with a reason for the caller. Nothing of it is stored."""
        raise Refused(reason, place=f"{self.category}-{self.id}" if self.id else self.category)

    @classmethod
    def kind_of(cls, declared: object) -> str | None:
        """Return what a value of the class body declares: a command, an event, another class, or None."""
        if isinstance(declared, type):
            return "event" if is_event_class(declared) else "class"
        return "command" if hasattr(declared, _COMMAND) else None

    @property
    def stream(self) -> StreamName:
        """The stream this aggregate's events belong to."""
        return StreamName(self.category, self.id)

    @classmethod
    def state_source(cls) -> str:
        """Return the Python source of what derives the state."""
        return source_of(cls)

    @classmethod
    def _foreign(cls, event: object) -> UnknownEventType:
        kind = (event if isinstance(event, type) else type(event)).__qualname__
        elsewhere = f"declare the event in {cls.__name__}, or send a command to the aggregate that declares it"
        return UnknownEventType(
            f"{cls.__name__} has no event {kind}, and its events are {', '.join(sorted(cls.event_types)) or 'none'}",
            remedy=f"emit an object: {kind}(…)" if isinstance(event, type) else elsewhere,
            place=cls.category,
        )

    @classmethod
    def stored_types(cls) -> Mapping[str, EventType]:
        """Return the event types by every name that they are or were stored under."""
        return cls._stored_types

    @classmethod
    def stored_type(cls, name: str) -> EventType:
        """Return the event type that is or was stored under a name.

        Raises:
            UnknownEventType: No class of the aggregate has or had this name.
        """
        try:
            return cls._stored_types[name]
        except KeyError:
            raise unknown_event_type(name, cls.event_types, cls.category) from None


def names_of(cls: type[Aggregate]) -> frozenset[str]:
    """Return the names that a class of ours has, which none of its state fields may have."""
    return frozenset(name for name in dir(cls) if not name.startswith("__")) | frozenset(Aggregate.__annotations__)


Aggregate.own_names = names_of(Aggregate)


def aggregate_of(command: Callable[..., object]) -> type[Aggregate]:
    """Return the aggregate a command belongs to; DeclarationError where it is not one's."""
    owner = getattr(command, _OWNER, None)
    if isinstance(owner, type) and issubclass(owner, Aggregate):
        return owner
    raise DeclarationError(
        f"{getattr(command, '__qualname__', command)!r} is not a command of an aggregate",
        remedy="decorate the method with @command and pass it unbound, such as Order.place, "
        "or give the function to decider(decide=[…])",
        code="unknown-aggregate",
    )


def command_name(command: Callable[..., object]) -> str:
    """Return the name of a command as messages have it; DeclarationError."""
    return f"{aggregate_of(command).category}.{command.__name__}"


def commands_of(aggregates: Iterable[type[Aggregate]]) -> dict[str, Callable[..., object]]:
    """Return the commands of aggregates by the names that messages have."""
    return {
        f"{aggregate.category}.{name}": command
        for aggregate in aggregates
        for name, command in aggregate.commands.items()
    }


def owner_of(event: type) -> type[Aggregate] | None:
    """Return the aggregate that an event class was declared in, None for one that stands alone."""
    owner = getattr(event, _OWNER, None)
    return owner if isinstance(owner, type) and issubclass(owner, Aggregate) else None


def types_as_stored(events: Iterable[type]) -> dict[str, EventType]:
    """Return the types of events by every name that they are or were stored under, and those made into them."""
    classes = list(events)
    own = {kind.name: kind for kind in map(event_type_of, classes)}
    split = {kind.name: kind for cls in classes for kind in _types_that_split(cls)}
    return {name: kind for kind in {**split, **own}.values() for name in kind.stored_names}


def _types_that_split(event: type) -> list[EventType]:
    """Return the event types of the same aggregate of which a function may make this event."""
    owner = owner_of(event)
    kinds = () if owner is None else owner.event_types.values()
    return [kind for kind in kinds if not kind.upcasters.declared_from(FIRST)]


def claim_command(function: Callable[..., object], owner: type[Aggregate]) -> Callable[..., object]:
    """Make a function a command of an aggregate; DeclarationError where it is another one's already."""
    known = getattr(function, _OWNER, owner)
    if known.category != owner.category:
        raise DeclarationError(
            f"{function.__qualname__} is a command of {known.category} already",
            remedy="write a function for each aggregate. What they share may be called by both",
            place=owner.category,
        )
    setattr(function, _OWNER, owner)
    return function


def _state_fields(cls: type[Aggregate], names: Mapping[str, Any]) -> dict[str, Any]:
    hints = hints_of(cls, {**names, **vars(cls)}, f"the state of {cls.__qualname__}", place=cls.__qualname__)
    declared = [name for base in reversed(cls.__mro__) for name in _annotated_names(base)]
    fields = {name: hints[name] for name in declared if not _is_class_variable(hints[name])}
    for name in fields:
        _check_field(cls, name)
    return fields


def _annotated_names(base: type) -> Iterable[str]:
    return () if base is Aggregate else inspect.get_annotations(base)


def _is_class_variable(hint: Any) -> bool:
    return hint is ClassVar or get_origin(hint) is ClassVar


def _check_names(cls: type[Aggregate]) -> None:
    """Refuse a command, an event, a handler or another class that takes the place of something else it inherits."""
    for name, value in vars(cls).items():
        kind = cls.kind_of(value)
        if kind is None or name.startswith("__"):
            continue
        inherited = getattr(super(cls, cls), name, None)
        if name in cls.own_names or (inherited is not None and cls.kind_of(inherited) != kind):
            raise _hides(cls, kind, name)


def _hides(cls: type[Aggregate], kind: str, name: str) -> DeclarationError:
    owners = (base for base in cls.__mro__[1:] if name in {*vars(base), *vars(base).get("own_names", ())})
    return DeclarationError(
        f"{kind} {name!r} of {cls.__qualname__} hides a name of {next(owners, cls).__qualname__} itself",
        remedy=f"name it otherwise, for example order_{name} instead of {name}",
        place=f"{cls.__qualname__}.{name}",
    )


def _check_field(cls: type[Aggregate], name: str) -> None:
    if name in cls.own_names:
        raise _hides(cls, "state field", name)
    for declared in (vars(cls).get(name), getattr(super(cls, cls), name, None)):
        if kind := cls.kind_of(declared):
            raise DeclarationError(
                f"{cls.__qualname__} has a state field and a {kind} of one name, {name!r}",
                remedy="name one of them otherwise",
                place=f"{cls.__qualname__}.{name}",
            )
    if not hasattr(cls, name):
        raise DeclarationError(
            f"state field {name!r} of {cls.__qualname__} has no default",
            remedy="give it the value it has before the first event",
            place=f"{cls.__qualname__}.{name}",
        )


def _event_types(cls: type[Aggregate]) -> dict[str, EventType]:
    inherited = dict(cls.event_types)
    for value in list(vars(cls).values()):
        if is_event_class(value):
            declared = finish_declaration(value, cls.category)
            setattr(value, _OWNER, cls)
            if declared.name in inherited:
                raise DeclarationError(
                    f"{cls.__qualname__} has two events named {declared.name!r}",
                    remedy="give one of them another class name or @event(name=...)",
                    place=cls.__qualname__,
                )
            inherited[declared.name] = declared
    return inherited


def _stored_types(cls: type[Aggregate]) -> dict[str, EventType]:
    by_name: dict[str, EventType] = {}
    for kind in cls.event_types.values():
        for name in kind.stored_names:
            if by_name.setdefault(name, kind) is not kind:
                raise DeclarationError(
                    f"{cls.__qualname__} has two events that are or were stored as {name!r}",
                    remedy="give one of them another name, and use Retype with this name in one of them only",
                    place=cls.__qualname__,
                )
    return by_name


def _handlers(cls: type[Aggregate]) -> dict[type, Callable[[Any, Any], object] | None]:
    names = {f"on_{snake_case(kind.cls.__name__)}": kind.cls for kind in cls.event_types.values()}
    for name in dir(cls):
        if name.startswith("on_") and callable(getattr(cls, name)) and name not in names:
            raise DeclarationError(
                f"{cls.__qualname__}.{name} handles no event of {cls.__qualname__}",
                remedy=f"rename it to one of {', '.join(sorted(names)) or '(no events declared)'}",
                place=f"{cls.__qualname__}.{name}",
                code="unknown-handler",
            )
    return {kind: getattr(cls, name, None) for name, kind in names.items()}


def _commands(cls: type[Aggregate]) -> dict[str, Callable[..., object]]:
    """The commands of a class; one that is inherited becomes its own, and so is sent to its own streams."""
    own = vars(cls)
    for name in _inherited_commands(cls):
        setattr(cls, name, _inherited(cls, name))
    methods = {name: claim_command(value, cls) for name, value in own.items() if hasattr(value, _COMMAND)}
    return {**{name: known for name, known in cls.commands.items() if name not in own}, **methods}


def _inherited_commands(cls: type[Aggregate]) -> list[str]:
    names = {name for base in cls.__mro__[1:] for name, value in vars(base).items() if hasattr(value, _COMMAND)}
    return sorted(name for name in names if name not in vars(cls) and hasattr(getattr(cls, name), _COMMAND))


def _inherited(cls: type[Aggregate], name: str) -> Callable[..., object]:
    method = getattr(cls, name)

    @wraps(method)
    def inherited(self: Aggregate, *args: Any, **kwargs: Any) -> object:
        return getattr(super(cls, self), name)(*args, **kwargs)

    inherited.__dict__.pop(_OWNER, None)
    inherited.__module__, inherited.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
    return inherited


# deepcopy copies these, although nothing of them can change; what it gives back as it is (numbers, text, enums, None,
# tuples of those) needs no list.
_NEVER_CHANGE: Final = frozenset({date, datetime, time, timedelta, timezone, UUID, object})


def part_defaults(owner: str, values: Mapping[str, Any]) -> tuple[dict[str, Callable[[], Any]], dict[str, Any]]:
    """Part defaults into those made for every state and those that are shared; DeclarationError."""
    fresh: dict[str, Callable[[], Any]] = {}
    shared: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dataclasses.Field) and value.default_factory is not dataclasses.MISSING:
            fresh[name] = value.default_factory
            continue
        default = value.default if isinstance(value, dataclasses.Field) else value
        if _may_be_shared(default, f"{owner}.{name}"):
            shared[name] = default
        else:
            fresh[name] = partial(copy.deepcopy, default)
    return fresh, shared


def _may_be_shared(value: Any, place: str) -> bool:
    kind = type(value)
    if kind in _NEVER_CHANGE or _copied(value, place) is value:
        return True
    if kind in (tuple, frozenset):
        return all(_may_be_shared(item, place) for item in value)
    ways = record_class(kind)
    return ways is not None and ways.frozen and all(_may_be_shared(item, place) for item in _all_of(value, ways.values))


def _all_of(record: Any, values: Callable[[Any], dict[str, Any]]) -> list[Any]:
    """Every value a record holds: those of its fields, and other attributes that a method may have set."""
    return [*values(record).values(), *getattr(record, "__dict__", {}).values()]


def _copied(value: Any, place: str) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise DeclarationError(
            f"the default of state field {place} cannot be copied, and every aggregate would share it: {error}",
            remedy="create one for each: field(default_factory=…), from dataclasses",
            place=place,
        ) from error
