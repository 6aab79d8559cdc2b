"""A command's way: load the aggregate, let it decide, append; again if another writer was faster."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import stamina

from eventstore.aggregate import Aggregate, aggregate_of
from eventstore.errors import Refused, WrongExpectedVersion
from eventstore.event_types import event_type_of
from eventstore.identifiers import NO_STREAM, NO_VERSION, StreamName
from eventstore.messages import NO_METADATA, Command, Metadata, RecordedEvent
from eventstore.store import AppendResult, EventStore

P = ParamSpec("P")
A = TypeVar("A", bound=Aggregate)

_ATTEMPTS: Final = 10
_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The command led to these events (none if nothing had to happen); `version` is the stream's now."""

    command: Command
    stream: str
    version: int
    events: tuple[RecordedEvent, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The aggregate said no; `reason` is the sentence its author wrote, nothing was stored."""

    command: Command
    stream: str
    reason: str


class Dispatcher:
    """Sends commands to aggregates in one store."""

    def __init__(self, store: EventStore, *, metadata: Metadata = NO_METADATA, attempts: int = _ATTEMPTS) -> None:
        self._store = store
        self._metadata = metadata
        self._attempts = attempts

    def with_metadata(self, metadata: Metadata) -> Dispatcher:
        """Return a dispatcher whose commands belong to a conversation, a cause, a trace."""
        return Dispatcher(self._store, metadata=metadata, attempts=self._attempts)

    def send(
        self,
        aggregate_id: str,
        command: Callable[Concatenate[A, P], object],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Accepted | Refusal:
        """Send `Order.place` with its arguments to one aggregate.

        WrongExpectedVersion only after ten lost races; InvalidIdentifier, InvalidEventData, UnknownAggregate,
        and the store's own errors.
        """
        kind = aggregate_of(command)
        stream = StreamName(kind.category, aggregate_id)
        message = self._message(stream, command, args, kwargs)
        try:
            for attempt in self._retries():
                with attempt:
                    state = self._load(kind, stream)
                    emitted = kind.decide(state, command, *args, **kwargs)
                    return self._append(message, emitted, before=state.version - len(emitted))
        except Refused as refused:
            return Refusal(message, str(stream), refused.reason)
        raise AssertionError("a retry ends by returning or raising")

    def load(self, kind: type[A], aggregate_id: str) -> A:
        """Return an aggregate as its events made it; version -1 where it has none."""
        return self._load(kind, StreamName(kind.category, aggregate_id))

    def _load(self, kind: type[A], stream: StreamName) -> A:
        return kind.fold(kind.initial_state(stream.id), self._store.read_stream(stream))

    def _message(self, stream: StreamName, command: Callable[..., object], args: Any, kwargs: Any) -> Command:
        bound = inspect.signature(command).bind(None, *args, **kwargs)
        arguments = dict(list(bound.arguments.items())[1:])
        return Command(f"{stream.category}.{command.__name__}", str(stream), arguments, metadata=self._metadata)

    def _append(self, message: Command, emitted: list[object], *, before: int) -> Accepted:
        if not emitted:
            return Accepted(message, message.stream, before, ())
        expected = NO_STREAM if before == NO_VERSION else before
        metadata = message.caused()
        result = self._store.append(message.stream, emitted, expected=expected, metadata=metadata)
        events = tuple(_recorded(result, i, event, metadata) for i, event in enumerate(emitted))
        return Accepted(message, message.stream, result.version, events)

    def _retries(self) -> Any:
        return stamina.retry_context(
            on=WrongExpectedVersion,
            attempts=self._attempts,
            timeout=_SECONDS,
            wait_initial=0.002,
            wait_max=0.1,
            wait_jitter=0.01,
        )


def _recorded(result: AppendResult, i: int, event: object, metadata: Metadata) -> RecordedEvent:
    kind = event_type_of(event)
    return RecordedEvent(
        id=result.ids[i],
        stream=result.stream,
        version=result.versions[i],
        type=kind.name,
        schema_id=kind.schema_id,
        data=dict(kind.to_plain(event)),
        metadata=metadata,
        time=result.time,
        position=result.positions[i],
    )
