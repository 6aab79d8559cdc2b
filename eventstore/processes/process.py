"""Processes: what a service does about events over days, with its state in a stream of its own.

    class Fulfilment(Process, sends=[Item, Order]):
        paid: bool = False

        @starts(Order.Placed)
        def placed(self, event: Order.Placed) -> None:
            self.send(event.sku, Item.reserve, order_id=self.id).undone_by(Item.release, order_id=self.id)
            self.timeout("payment", after=timedelta(minutes=30))

        @reacts(Payment.Received, id="order_id")
        def received(self, event: Payment.Received) -> None:
            self.paid = True
            self.cancel("payment")

        @times_out("payment")
        def unpaid(self) -> None:
            self.compensate("not paid in time")

A handler changes the state's fields and decides. It reads nothing and waits for nothing. What it decided becomes one
event of the process's stream. The commands, the timers and the note that the input was handled are stored in the same
transaction: docs/concepts/processes.md.

Which inputs a process takes, and which of its methods handles each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

from eventstore.aggregates.aggregate import Aggregate, command_name, commands_of, names_of, owner_of, types_as_stored
from eventstore.aggregates.command_schemas import encode_arguments
from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.event_types import EventType, event, event_type_of, is_event_class
from eventstore.fields.conversions import aware_utc, kind_of, later_or_last, not_negative
from eventstore.fields.field_compilation import compile_hints
from eventstore.fields.field_types import Field
from eventstore.fields.plain_json import dump_plain, load_plain
from eventstore.fields.serialization import placeholder
from eventstore.identifiers import StreamName
from eventstore.personal.sealing import Disclosed, Erased
from eventstore.processes.records import UNSTARTED, Cause, SentCommand, SetTimer, Undoable

H = TypeVar("H", bound=Callable[..., object])
Correlation = str | Callable[[Any], str | None] | None
"""How an event names the instance: a field, a function of the event (None: no instance), or the id of its stream."""

_MARKS: Final = "__factfold_reactions__"
_IDS: Final = ("string", "long", "uuid")
STARTS, REACTS, LATE = "starts", "reacts", "late"
REPLIES, TIMES_OUT, COMPENSATED = "replies", "times_out", "compensated"
_OF_EVENTS: Final = (STARTS, REACTS, LATE)


Mark = tuple[str, Any, Correlation]
"""What a method is marked with: the way, what it handles, and how an event names the instance."""


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
    return _marking((STARTS, event, id))


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
    return _marking((REACTS, event, id))


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
    return _marking((LATE, event, id))


def replies(command: Callable[..., object], /) -> Callable[[H], H]:
    """Handle the `Reply` to a command that this process sent.

    Examples:
        >>> @replies(Item.reserve)
        ... def reserved(self, reply: Reply) -> None: ...
    """
    return _marking((REPLIES, command, None))


def times_out(name: str, /) -> Callable[[H], H]:
    """Handle the timer of this name, which `self.timeout(name, after=…)` sets.

    Examples:
        >>> @times_out("payment")
        ... def unpaid(self) -> None:
        ...     self.compensate("not paid within 30 minutes")
    """
    return _marking((TIMES_OUT, name, None))


def compensated(method: H, /) -> H:
    """Call this method when every compensation was accepted.

    Examples:
        >>> @compensated
        ... def undone(self) -> None:
        ...     self.send(self.id, Order.cancel, reason="given up")
    """
    return _marking((COMPENSATED, None, None))(method)


def is_handler(value: object) -> bool:
    """Say whether a value of a class body handles an input."""
    return hasattr(value, _MARKS)


def _marking(mark: Mark) -> Callable[[H], H]:
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
    """All reactions of a process, by the way and what they answer: an event class, a command's name, a timer's name."""

    handlers: Mapping[tuple[str, Any], Reaction] = field(default_factory=dict)
    kinds: Mapping[str, EventType] = field(default_factory=dict)
    categories: frozenset[str] = frozenset()

    def get(self, way: str, what: Any = None) -> Reaction | None:
        """Return the reaction to an input, None if there is none."""
        return self.handlers.get((way, what))

    def addressed(
        self, stored_type: str, schema_version: int, data: Mapping[str, Any], stream_id: str
    ) -> dict[str, list[Arrived]]:
        """Return the current events of a stored one, by the instance of each. Raises the errors of `events`."""
        kind = self.kinds.get(stored_type)
        if kind is None:
            return {}
        by_instance: dict[str, list[Arrived]] = {}
        for happened in kind.events(schema_version, impersonal(kind, data)):
            reactions = {way: one for way in _OF_EVENTS if (one := self.get(way, type(happened)))}
            named = {way: self._instance(one, happened, stream_id) for way, one in reactions.items()}
            for instance in sorted({name for name in named.values() if name is not None}):
                ways = frozenset(way for way, name in named.items() if name == instance)
                by_instance.setdefault(instance, []).append(Arrived(happened, ways))
        return by_instance

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
    handlers: dict[tuple[str, Any], Reaction] = {}
    methods = {name: value for base in reversed(owner.__mro__) for name, value in vars(base).items() if callable(value)}
    for name, method in methods.items():
        for way, what, correlation in getattr(method, _MARKS, ()):
            if way in _OF_EVENTS:
                _require_event(what, correlation, owner, name)
            key = way, command_name(what) if way == REPLIES else what
            known = handlers.setdefault(key, Reaction(method, _takes_input(method, owner), correlation)).method
            if known is not method:
                what_else = f"handles the same as {known.__name__}"
                raise _mistake(owner, name, what_else, "handle each input by one method")
    events = list(dict.fromkeys(what for way, what in handlers if way in _OF_EVENTS))
    return Reactions(handlers, types_as_stored(events), frozenset(_category(event, owner) for event in events))


def _takes_input(method: Callable[..., object], owner: type) -> bool:
    if inspect.iscoroutinefunction(method):
        raise _mistake(owner, method.__name__, "is a coroutine function", "write it as def: a step waits for nothing")
    parameters = list(inspect.signature(method).parameters)
    if len(parameters) > 2:
        raise _mistake(owner, method.__name__, "takes more than its input", "take self and the input, or self alone")
    return len(parameters) == 2


def _require_event(event: Any, named: Correlation, owner: type, method: str) -> None:
    if not is_event_class(event):
        raise _mistake(owner, method, f"is to handle {event!r}, which is no event", "name a class made by @event")
    kind = event_type_of(event)
    ids = [field.name for field in kind.fields if field.personal is None and kind_of(field.type.avro) in _IDS]
    if isinstance(named, str) and named not in ids:
        raise _mistake(
            owner, method, f"finds its instance by {named!r}, which is no clear text, number or UUID of {kind.name}",
            f"use one of its fields ({', '.join(ids) or 'none'}) or a function, or leave id out for that of the stream",
        )  # fmt: skip


def _category(event: type, owner: type) -> str:
    aggregate = owner_of(event)
    if aggregate is None:
        raise _mistake(owner, event.__qualname__, "belongs to no aggregate", "declare the event inside an aggregate")
    return aggregate.category


def _mistake(owner: type, method: str, what: str, remedy: str) -> DeclarationError:
    place = f"{owner.__qualname__}.{method}"
    return DeclarationError(f"{place} {what}", remedy=remedy, place=place)


_MOST_STEPS: Final = 10_000


@dataclass
class Sending:
    """A command that a handler decided to send. Each method returns it, for chaining.

    Examples:
        >>> def placed(self, event: Order.Placed) -> None:  # in a Process, with @starts(Order.Placed)
        ...     self.send("tea", Item.reserve, order_id=self.id).undone_by(Item.release, order_id=self.id)
    """

    process: Process = field(repr=False)
    command: Callable[..., object]
    to: str
    arguments: str
    delay: timedelta = timedelta(0)
    expires_after: timedelta | None = None
    undo: Sending | None = None

    def undone_by(self, command: Callable[..., object], /, *args: Any, to: str | None = None, **kwargs: Any) -> Sending:
        """Name the command that compensates it, for the same aggregate unless `to` names another."""
        self.undo = self.process.sending(to or self.to, command, args, kwargs)
        return self

    def delayed(self, after: timedelta) -> Sending:
        """Send it later, by this delay."""
        self.delay = not_negative(after, "a delay")
        return self

    def expiring(self, after: timedelta) -> Sending:
        """Send it within this time after it is due, or never: the reply then says `expired`."""
        self.expires_after = not_negative(after, "the time after which a command expires")
        return self


@dataclass
class Decided:
    """What a handler decided about an input, until its step is recorded."""

    cause: Cause
    now: datetime
    sends: list[Sending] = field(default_factory=list)
    timers: dict[str, datetime] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    done: bool = False
    compensate: str | None = None


@dataclass
class Standing:
    """What an instance is at: status, what keeps it from going on, compensations, what came before its start.

    Of compensations a step records those that changed since another one, `rest` steps before it, which recorded all:
    `recorded`. Otherwise the steps of many commands would grow with their square.
    """

    status: str = UNSTARTED
    problem: str = ""
    undoables: list[Undoable] = field(default_factory=list)
    early: list[Cause] = field(default_factory=list)
    recorded: list[Undoable] = field(default_factory=list)
    rest: int = 0

    def to_record(self) -> list[Undoable]:
        """What the next step records of the compensations: few changes, or all of them."""
        known = {one.id: one for one in self.recorded}
        changed = [one for one in self.undoables if known.get(one.id) != one]
        if len(changed) ** 2 < len(self.undoables):
            self.rest += 1
            return changed
        self.recorded, self.rest = list(self.undoables), 0
        return list(self.undoables)

    def took(self, undoables: Sequence[Undoable], rest: int) -> None:
        """Take what a step recorded of the compensations; what changed last comes last."""
        if rest == 0:
            self.recorded = list(undoables)
        changed = {one.id for one in undoables}
        unchanged = [one for one in self.recorded if one.id not in changed]
        self.undoables, self.rest = [*unchanged, *undoables], rest


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a command of a process.

    Attributes:
        command: The name of the command.
        outcome: `accepted`, `refused` or `expired`.
        reason: The aggregate's reason for a refusal.

    Examples:
        >>> @replies(Item.reserve)
        ... def answered(self, reply: Reply) -> None:
        ...     if not reply.accepted:
        ...         self.compensate(reply.reason)
    """

    command: str
    outcome: str
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the aggregate accepted it."""
        return self.outcome == "accepted"


class Process(Aggregate, category="process"):
    """A process manager. Fields with defaults are its state, and decorated methods handle its inputs.

    Class keywords: `sends` lists the aggregates that get commands. `version` numbers the code, and `earlier` lists the
    classes of former versions, by which their instances end. `max_steps` ends a process that runs in a circle.
    `standing` holds the instance's status.

    Examples:
        >>> class Shipping(Process, sends=[Item, Order]):
        ...     sku: str = ""
        ...     @starts(Order.Placed)
        ...     def placed(self, event: Order.Placed) -> None:
        ...         self.send(event.sku, Item.reserve, self.id)
    """

    code_version: ClassVar[int] = 1
    max_steps: ClassVar[int] = _MOST_STEPS
    commands_sent: ClassVar[Mapping[str, Callable[..., object]]] = {}
    versions: ClassVar[Mapping[int, type[Any]]] = {}
    reactions: ClassVar[Reactions] = Reactions()

    _encoded: ClassVar[tuple[Field, ...]] = ()

    @event(name="process.stepped")
    class Stepped:
        """One step: what came, what was decided, and the state after it (JSON)."""

        code: int
        cause: Cause
        status: str
        state: str
        sent: list[SentCommand]
        timers: list[SetTimer]
        cancelled: list[str]
        withdrawn: bool
        undoables: list[Undoable]
        early: list[Cause]
        problem: str = ""
        note: str = ""
        rest: int = 0

    def __init_subclass__(
        cls,
        *,
        sends: Sequence[type[Aggregate]] = (),
        version: int = 1,
        earlier: Sequence[type[Process]] = (),
        max_steps: int | None = None,
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        cls.code_version = version
        cls.max_steps = max_steps or cls.max_steps
        cls.commands_sent = {**cls.commands_sent, **commands_of(sends)}
        cls.reactions = read_reactions(cls)
        cls._encoded = compile_hints(cls._fields, owner=cls.__qualname__, namespace=cls.category)
        cls.versions = {version: cls, **{known.code_version: known for known in earlier}}
        _check(cls, earlier)

    @classmethod
    def kind_of(cls, declared: object) -> str | None:
        """Return what a value of the class body declares, a handler among them."""
        return "handler" if is_handler(declared) else super().kind_of(declared)

    def __init__(self, id: str = "") -> None:
        super().__init__(id)
        own = self.__dict__
        own["standing"], own["_decided"] = Standing(), None

    if TYPE_CHECKING:

        @property
        def standing(self) -> Standing:
            """The state of the instance besides its own fields."""

    @property
    def now(self) -> datetime:
        """The time of the step, UTC."""
        return self.decided.now

    @property
    def cause(self) -> Cause:
        """The input of the step: its id, time, place and conversation."""
        return self.decided.cause

    @property
    def decided(self) -> Decided:
        """What the handler that is called has decided so far. Raises DeclarationError outside of a handler."""
        decided: Decided | None = self.__dict__["_decided"]
        if decided is None:
            raise DeclarationError(
                f"{type(self).__qualname__} decides outside of a handler",
                remedy="decide in methods marked by @starts, @reacts, @late, @replies or @times_out",
                place=type(self).__qualname__,
            )
        return decided

    def send(self, aggregate_id: str, command: Callable[..., object], /, *args: Any, **kwargs: Any) -> Sending:
        """Send a command when this step is stored. Its id follows from this input: it is sent once."""
        sending = self.sending(aggregate_id, command, args, kwargs)
        self.decided.sends.append(sending)
        return sending

    def sending(
        self, aggregate_id: str, command: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Sending:
        """Return a command that can be sent. Raises DeclarationError if its aggregate is not in `sends`.

        InvalidIdentifier for an id that no stream can have, InvalidEventData for arguments that do not fit.
        """
        name = command_name(command)
        if name not in self.commands_sent:
            raise _not_sent(type(self), name)
        StreamName(name.partition(".")[0], aggregate_id)
        return Sending(self, command, aggregate_id, encode_arguments(command, args, kwargs))

    def timeout(self, name: str, *, after: timedelta | None = None, at: datetime | None = None) -> None:
        """Set a timer, in place of an earlier one of its name.

        A moment in the past is due at once, one beyond the year 9999 never.
        """
        if self.reactions.get(TIMES_OUT, name) is None:
            raise DeclarationError(
                f"{type(self).__qualname__} has no handler for the timer {name!r}",
                remedy=f'mark a method @times_out("{name}"), or name it in timers= of process_of',
                place=type(self).__qualname__,
            )
        if (after is None) == (at is None):
            raise InvalidEventData(
                f"timer {name!r} is due either after some time or at a moment", remedy="give after= or at=, one of them"
            )
        if after is not None:
            self.decided.timers[name] = later_or_last(self.now, not_negative(after, "a timer"))
        elif at is not None:
            self.decided.timers[name] = aware_utc(at)
        if name in self.decided.cancelled:
            self.decided.cancelled.remove(name)

    def cancel(self, name: str) -> None:
        """Take back a timer, if there is one."""
        self.decided.timers.pop(name, None)
        if name not in self.decided.cancelled:
            self.decided.cancelled.append(name)

    def done(self) -> None:
        """End the instance: its timers are taken back, events that come later go to `@late` handlers."""
        self.decided.done = True

    def compensate(self, reason: str) -> None:
        """Undo what was accepted, the last first, each after the reply to the one before.

        What was not sent yet is withdrawn, and timers are taken back.
        """
        self.decided.compensate = reason

    def emit(self, event: object) -> NoReturn:
        """Refuse: the events of a process are its steps."""
        raise DeclarationError(
            f"{type(self).__qualname__} emits {type(event).__qualname__}, and a process has no events but its steps",
            remedy="send a command to the aggregate whose event it is",
            place=type(self).__qualname__,
        )

    def state_json(self) -> str:
        """Return the state's fields as JSON. Raises InvalidEventData if a value does not fit its type."""
        values = self.state()
        return dump_plain({one.name: self._converted(one, one.type.plain, values[one.name]) for one in self._encoded})

    def on_stepped(self, step: Stepped) -> None:
        """Take the state of a step."""
        own = self.__dict__
        own["standing"] = Standing(step.status, step.problem, early=list(step.early), recorded=self.standing.recorded)
        self.standing.took(step.undoables, step.rest)
        state = load_plain(step.state)
        for one in self._encoded:
            if one.name in state:
                own[one.name] = self._converted(one, one.type.opened, state[one.name])

    def _converted(self, one: Field, convert: Callable[[Any], Any], value: Any) -> Any:
        remedy = "give the field a value of its type. For another type, give the class another version="
        return one.converted(convert, value, "state field", owner=type(self).__qualname__, remedy=remedy)


def process_group(process: type[Process]) -> str:
    """Return the group by which a process gets its events."""
    return f"{process.category}-process"


def _not_sent(cls: type[Process], command: str) -> DeclarationError:
    return DeclarationError(
        f"{cls.__qualname__} does not say that it sends {command}",
        remedy=f"class {cls.__name__}(Process, sends=[…]) with the aggregate of {command}",
        place=cls.__qualname__,
    )


Process.own_names = names_of(Process) | {"standing", "_decided"}


def _check(cls: type[Process], earlier: Sequence[type[Process]]) -> None:
    handled = cls.reactions.handlers
    if not any(way == STARTS for way, _ in handled):
        raise DeclarationError(
            f"{cls.__qualname__} has no start", remedy="mark a method: @starts(Order.Placed)", place=cls.__qualname__
        )
    if unsent := {what for way, what in handled if way == REPLIES} - cls.commands_sent.keys():
        raise _not_sent(cls, min(unsent))
    for known in earlier:
        if known.category != cls.category or known.code_version >= cls.code_version:
            raise DeclarationError(
                f"{known.__qualname__} is no earlier version of {cls.__qualname__}",
                remedy=f'class {known.__name__}(Process, category="{cls.category}", version={cls.code_version - 1})',
                place=cls.__qualname__,
            )
