"""A command's way: load the aggregate, let it decide, append; again if another writer was faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar
from uuid import UUID, uuid4, uuid5

import stamina
import structlog

from eventstore.aggregates.aggregate import Aggregate, aggregate_of, command_name
from eventstore.aggregates.command_schemas import given_arguments, recorded_command
from eventstore.errors import DeclarationError, EventIdTaken, FactfoldError, Refused, WrongExpectedVersion
from eventstore.event_types import event_type_of
from eventstore.identifiers import (
    NO_STREAM,
    NO_VERSION,
    StreamName,
    checked_command_id,
    require_like,
    require_sequence,
    require_type,
)
from eventstore.snapshots import Snapshots
from eventstore.store import (
    NO_METADATA,
    AppendResult,
    Cause,
    Command,
    Metadata,
    NewEvent,
    RecordedEvent,
    Streams,
    TransactionalStore,
    is_uuid,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

P = ParamSpec("P")
A = TypeVar("A", bound=Aggregate)

ATTEMPTS: Final = 10
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The command was accepted and led to these events.

    Attributes:
        command: The command as it was sent.
        stream: The aggregate's stream.
        version: The stream's version after the command.
        events: The recorded events, none if the command changed nothing.

    Examples:
        >>> match service.send("o1", Order.place, customer_id=7, quantity=2):
        ...     case Accepted(version=version):
        ...         print(version)
        0
    """

    command: Command
    stream: str
    version: int
    events: tuple[RecordedEvent, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The aggregate refused the command, and nothing was stored.

    Attributes:
        command: The command as it was sent.
        stream: The aggregate's stream.
        reason: The sentence that the aggregate gave to `refuse`.

    Examples:
        >>> match service.send("o1", Order.place, customer_id=7, quantity=0):
        ...     case Refusal(reason=reason):
        ...         print(reason)
        an order needs a quantity of at least 1
    """

    command: Command
    stream: str
    reason: str


Result = Accepted | Refusal
Send = Callable[[Command], Result]
Middleware = Callable[[Command, Send], Result]
"""A function around every command: it sends the command on, changed or not, or refuses it.

It may look, refuse (``raise Refused`` or return a `Refusal`), send the command on with other metadata, and look at what
came of it:

    def timed(command: Command, send: Send) -> Result:
        began = time.perf_counter()
        try:
            return send(command)
        finally:
            seconds.labels(command.name).observe(time.perf_counter() - began)
"""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Options of a dispatcher, as in Dispatcher."""

    metadata: Metadata = NO_METADATA
    attempts: int = ATTEMPTS
    snapshots: Snapshots | None = None
    command_id: UUID | None = None
    new_id: Callable[[], UUID] = uuid4
    keep_commands: bool = False

    def with_metadata(self, metadata: Metadata) -> Self:
        """Return a dispatcher whose commands carry a conversation, a cause and a trace."""
        require_type(metadata, Metadata, "metadata", takes="Metadata(…)")
        return replace(self, metadata=metadata)

    def once(self, command_id: UUID) -> Self:
        """Return a dispatcher for one command that may be sent several times: its events are appended once.

        A repeated command gets the events of the first. A command that was refused, or that led to no event, is decided
        again.

        Raises:
            InvalidIdentifier: The id is no UUID.
            EventIdTaken: The id belongs to another command or another aggregate. Raised by `send`.

        Examples:
            >>> service.once(request_id).send("o1", Order.pay, amount=120)
        """
        return replace(self, command_id=checked_command_id(command_id))


@dataclass(frozen=True)
class Dispatcher(CommandOptions):
    """Sends commands to aggregates in one store.

    A command that loses a race is decided again, at most `attempts` times within ten seconds.

    Args:
        store: The store of the aggregates.
        middleware: What runs around each command, the outermost first. See `Middleware`.
        metadata: The conversation, cause and trace of all commands.
        attempts: How often a command is decided at most when it loses races.
        snapshots: Aggregate snapshots: an aggregate is loaded from the newest one and the events after it.
        command_id: The id of the command. Use `once` instead.
        new_id: Makes the ids of commands.
        keep_commands: Store each command with the events that it led to, for `decide_again`. Its parameters need types.

    Examples:
        >>> service = Dispatcher(store)
        >>> service.send("o1", Order.place, customer_id=7, quantity=2)
    """

    store: Streams
    middleware: Sequence[Middleware] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        require_like(self.store, "read_stream", "store", takes="an event store")
        for one in require_sequence(self.middleware, "middleware", takes="a list of functions"):
            require_like(one, "__call__", "a middleware", takes="functions of a command and what sends it")

    def within(self, connection: Connection) -> Dispatcher:
        """Return a dispatcher that loads and appends in the caller's transaction, with rows of ordinary tables.

        Nothing is stored until the caller commits. A lost race raises WrongExpectedVersion at once: in PostgreSQL the
        transaction can then only be rolled back. Aggregate snapshots are read and not taken.

        Raises:
            DeclarationError: The store takes part in no transaction.

        Examples:
            >>> with store.engine.begin() as tx:
            ...     service.within(tx).send_or_raise("o1", Order.pay, amount=120)
            ...     tx.execute(insert(receipts).values(order="o1"))
        """
        if not isinstance(self.store, TransactionalStore):
            raise DeclarationError(
                f"{type(self.store).__name__} cannot append in its caller's transaction",
                remedy="use an SqlEventStore on the same database, and a dispatcher that is not in a transaction yet",
                place=type(self.store).__name__,
            )
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("store", "attempts")}
        return _Joined(self.store.within(connection), attempts=1, **own)

    def send(
        self,
        /,
        aggregate_id: str,
        command: Callable[Concatenate[Any, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Result:
        """Send a command, such as `Order.place` or a decider's function, with its arguments to one aggregate.

        Returns:
            Accepted with the events, or Refusal with the reason.

        Raises:
            WrongExpectedVersion: The command lost `attempts` races, or lost them for ten seconds.
            DeclarationError: The function is no command of an aggregate.
            EventIdTaken: The id of `once` belongs to another command.
            InvalidIdentifier: The id of the aggregate breaks the rules of names.
            InvalidEventData: A value does not fit its field.

        Examples:
            >>> match service.send("o1", Order.pay, amount=120):
            ...     case Refusal(reason=reason):
            ...         print(reason)
        """
        kind = aggregate_of(command)
        stream = StreamName(kind.category, aggregate_id)

        def decide(*, cached: bool) -> tuple[Aggregate, list[object]]:
            state = self._load(kind, stream, cached=cached)
            return state, kind.decide(state, command, *args, **kwargs)

        send = _answered(partial(self._decided, decide))
        for middleware in reversed(self.middleware):
            send = _answered(partial(_through, middleware, send))
        return send(self._message(stream, command, args, kwargs))

    def send_or_raise(
        self,
        /,
        aggregate_id: str,
        command: Callable[Concatenate[Any, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Accepted:
        """Send a command as `send` does, and raise Refused with the reason if the aggregate refuses it.

        Use it in a transaction: an unchecked refusal then ends the block, and nothing is committed.
        """
        result = self.send(aggregate_id, command, *args, **kwargs)
        if isinstance(result, Refusal):
            raise Refused(result.reason, place=result.stream)
        return result

    def load(self, kind: type[A], aggregate_id: str) -> A:
        """Return an aggregate derived from its events. Its version is -1 if it has none."""
        require_like(kind, "category", "kind", takes="the aggregate's class")
        return self._load(kind, StreamName(kind.category, aggregate_id))

    def take_snapshot(self, kind: type[A], aggregate_id: str) -> A:
        """Take an aggregate snapshot now, whatever the interval is, and return the state it holds.

        Raises:
            StoreUnavailable: The database did not answer.
        """
        if self.snapshots is None:
            raise DeclarationError(
                "this dispatcher takes no aggregate snapshots",
                remedy="give it some: Dispatcher(store, snapshots=Snapshots(store))",
                place=kind.__qualname__,
            )
        state = self.load(kind, aggregate_id)
        self.snapshots.take(state)
        return state

    def _decided(self, decide: Callable[..., tuple[Aggregate, list[object]]], message: Command) -> Accepted:
        for attempt in self._retries():
            with attempt:
                if (earlier := self._earlier(message)) is not None:
                    return earlier
                return self._append(message, *decide(cached=attempt.num == 1))
        raise AssertionError("a retry ends by returning or raising")

    def _load(self, kind: type[A], stream: StreamName, *, cached: bool = True) -> A:
        known = self.snapshots.latest(kind, stream, cached=cached) if self.snapshots else None
        if known is None:
            return kind.fold(kind.initial_state(stream.id), self.store.read_stream(stream))
        return kind.fold(known, self.store.read_stream(stream, from_version=known.version + 1))

    def _message(self, stream: StreamName, command: Callable[..., object], args: Any, kwargs: Any) -> Command:
        arguments = given_arguments(command, args, kwargs)
        if self.keep_commands:
            arguments = deepcopy(arguments)  # a command may change a list that it was given
        return Command(command_name(command), str(stream), arguments, self.command_id or self.new_id(), self.metadata)

    def _earlier(self, message: Command) -> Accepted | None:
        """The earlier result of the same command, by the id of its first event."""
        if self.command_id is None or (first := self.store.find(_event_id(message.id, 0))) is None:
            return None
        cause = first.metadata.causation_id
        named = Cause.parse(cause)
        _require_same(message, first.stream, name=named.name if named and named.name else message.name)
        following = self.store.read_stream(first.stream, from_version=first.version)
        events = tuple(takewhile(lambda event: event.metadata.causation_id == cause, following))
        return Accepted(message, first.stream, events[-1].version, events)

    def _append(self, message: Command, state: Aggregate, emitted: list[object]) -> Accepted:
        before = state.version - len(emitted)
        if not emitted:
            return Accepted(message, message.stream, before, ())
        expected, metadata = NO_STREAM if before == NO_VERSION else before, self._caused(message)
        named = self._named(message, type(state), emitted)
        result = self.store.append(message.stream, named, expected=expected, metadata=metadata)
        if result.repeated and (earlier := self._earlier(message)):  # another sender was faster, maybe on another state
            return earlier
        self._passed(state, before=before)
        events = tuple(_recorded(result, i, event, metadata) for i, event in enumerate(emitted))
        return Accepted(message, message.stream, result.version, events)

    def _passed(self, state: Aggregate, *, before: int) -> None:
        if self.snapshots is not None:
            self.snapshots.passed(state, before=before)

    def _caused(self, message: Command) -> Metadata:
        """The metadata of a command's events.

        Those of a command that may come again say which command its id belongs to. Those of a command that was sent
        for an event say which event: nothing else that is stored links the two.
        """
        metadata, sent_for = message.caused(), message.metadata.causation_id
        of = sent_for if is_uuid(sent_for) else None
        if self.command_id is None and of is None:
            return metadata
        return replace(metadata, causation_id=str(Cause(str(message.id), message.name, of)))

    def _named(self, message: Command, kind: type[Aggregate], emitted: list[object]) -> list[object]:
        """The events, under ids that follow from that of a command which may come again, and the first with it."""
        named = emitted
        if self.command_id is not None:
            named = [NewEvent(event, id=_event_id(message.id, number)) for number, event in enumerate(emitted)]
        if not self.keep_commands:
            return named
        first = named[0] if isinstance(named[0], NewEvent) else NewEvent(emitted[0])
        return [replace(first, command=recorded_command(message, kind, emitted)), *named[1:]]

    def _retries(self) -> Any:
        return stamina.retry_context(
            on=WrongExpectedVersion,
            attempts=self.attempts,
            timeout=_SECONDS,
            wait_initial=0.002,
            wait_max=0.1,
            wait_jitter=0.01,
        )


class _Joined(Dispatcher):
    """A dispatcher in its caller's transaction. It shares no state, because the transaction may be rolled back."""

    def take_snapshot(self, kind: type[A], aggregate_id: str) -> A:
        raise DeclarationError(
            "an aggregate snapshot of a transaction that is not committed could outlive it",
            remedy="take it outside of the transaction, when that is committed",
            place=kind.__qualname__,
        )

    def _passed(self, state: Aggregate, *, before: int) -> None:
        """Nothing."""


def _through(middleware: Middleware, send: Send, message: Command) -> Result:
    return middleware(message, send)


def _answered(send: Send) -> Send:
    """Return refusals as values to outer middleware, whether the aggregate or inner middleware raised them."""

    def answered(message: Command) -> Result:
        try:
            return send(message)
        except Refused as refused:
            return Refusal(message, message.stream, refused.reason)

    return answered


def _require_same(message: Command, stream: str, *, name: str) -> None:
    """Raise EventIdTaken where the id of a command belongs to one of another name, or to another aggregate."""
    if (stream, name) != (message.stream, message.name):
        raise EventIdTaken(
            f"command {message.id} was sent to {stream} before, as {name}, and now comes as {message.name}",
            remedy="give each command an id of its own, and repeat it for the same aggregate",
            place=message.stream,
            code="command-id-taken",
        )


def _event_id(command_id: UUID, number: int) -> UUID:
    return uuid5(command_id, str(number))


def _recorded(result: AppendResult, i: int, event: object, metadata: Metadata) -> RecordedEvent:
    kind = event_type_of(event)
    return RecordedEvent(
        id=result.ids[i],
        stream=result.stream,
        version=result.versions[i],
        type=kind.name,
        schema_id=result.schema_ids[i],
        schema_version=kind.version,
        data=dict(kind.to_plain(event)),
        metadata=metadata,
        time=result.time,
        position=result.positions[i],
    )


def required(rule: Callable[[Command], str | None]) -> Middleware:
    """Refuse a command if the rule returns a reason, such as a missing permission.

    The rule is called once for a command, before anything is loaded, even if the command loses races.

    Examples:
        >>> def staff_only(command: Command) -> str | None:
        ...     return None if user.is_staff else "only staff may do this"
        >>> service = Dispatcher(store, middleware=[required(staff_only)])
    """

    def middleware(command: Command, send: Send) -> Result:
        reason = rule(command)
        return send(command) if reason is None else Refusal(command, command.stream, reason)

    return middleware


def logged() -> Middleware:
    """Log each command with its result and duration. Arguments stay out, since they may be personal.

    Examples:
        >>> service = Dispatcher(store, middleware=[logged()])
    """
    log = structlog.get_logger("eventstore.commands")

    def middleware(command: Command, send: Send) -> Result:
        began = time.perf_counter()
        bound = log.bind(command=command.name, id=str(command.id), stream=command.stream)
        try:
            result = send(command)
        except FactfoldError as error:
            bound.error("command failed", error=type(error).__name__, cause=error.message, seconds=_since(began))
            raise
        if isinstance(result, Refusal):
            bound.info("command refused", reason=result.reason, seconds=_since(began))
        else:
            bound.info("command accepted", version=result.version, events=len(result.events), seconds=_since(began))
        return result

    return middleware


def traced(span: Callable[[Command], AbstractContextManager[str]]) -> Middleware:
    """Send each command inside a span. Its events, and what they cause, carry the span's W3C `traceparent`.

    Args:
        span: Opens a span, as a child of `command.metadata.traceparent` if there is one, and yields its traceparent.

    Examples:
        >>> service = Dispatcher(store, middleware=[traced(span)])
    """

    def middleware(command: Command, send: Send) -> Result:
        with span(command) as traceparent:
            return send(replace(command, metadata=replace(command.metadata, traceparent=traceparent)))

    return middleware


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 6)
