"""The state of a stream at a version, and what the event of that version changed."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import DeclarationError, KeysMissing, NotFound
from eventstore.identifiers import StreamName
from eventstore.messages import RecordedEvent
from eventstore.store import Streams


class _Nothing:
    """The value of a field that a state does not have."""

    def __repr__(self) -> str:
        return "(no value)"


NO_VALUE: Final = _Nothing()


@dataclass(frozen=True, slots=True)
class StreamState:
    """The fields of an aggregate after an event, and before it."""

    event: RecordedEvent
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """The values before and after of each field that the event changed."""
        names = dict.fromkeys([*self.before, *self.after])
        pairs = {name: (self.before.get(name, NO_VALUE), self.after.get(name, NO_VALUE)) for name in names}
        return {name: (old, new) for name, (old, new) in pairs.items() if old is not new and old != new}


def event_at(store: Streams, stream: StreamName | str, *, version: int | None = None) -> RecordedEvent:
    """Return the event of a version, the last one without; NotFound, InvalidArgument."""
    if version is None:
        events = store.read_stream(stream, backwards=True, limit=1)
    else:
        events = store.read_stream(stream, from_version=version, to_version=version)
    for event in events:
        return event
    raise _not_found(stream, version, store.head(stream))


def stream_state(
    store: Streams, kind: type[Aggregate], stream: StreamName | str, *, version: int | None = None
) -> StreamState:
    """Fold a stream up to a version, by default the last one, and compare the state with the version before.

    Raises:
        NotFound: The stream has no event of this version.
        DeclarationError: The stream belongs to another aggregate.
        KeysMissing: An event has personal values, and the store was opened without keys. Masked values would give
            another state.

    Examples:
        >>> stream_state(store, Order, "order-o1", version=1).changes
        {'status': ('placed', 'paid')}
    """
    name = stream if isinstance(stream, StreamName) else StreamName.parse(stream)
    _require_own(kind, name)
    last = event_at(store, name, version=version)
    state = kind.initial_state(name.id)
    try:
        if last.version:
            state = kind.fold(state, store.read_stream(name, to_version=last.version - 1))
        before = deepcopy(dict(state.state()))  # a handler may change a list in its place
        after = kind.fold(state, [last]).state()
    except KeysMissing as error:
        raise KeysMissing(
            f"the state of {name} depends on personal values, and there are no keys here to open them",
            remedy="open the store with its keys (factfold streams show --show-personal), or look at the events alone",
            place=error.place or str(name),
        ) from None
    return StreamState(last, before, after)


def _require_own(kind: type[Aggregate], stream: StreamName) -> None:
    if kind.category != stream.category:
        raise DeclarationError(
            f"{kind.__qualname__} is the aggregate of category {kind.category!r}, and {stream} is not of it",
            remedy=f"name the aggregate of category {stream.category!r}, or a stream of {kind.category!r}",
            place=str(stream),
        )


def _not_found(stream: StreamName | str, version: int | None, head: int | None) -> NotFound:
    if head is None:
        return NotFound(
            f"stream {str(stream)!r} has no events here, or was deleted",
            remedy="check its name and the store that you read",
            place=str(stream),
            code="events-not-found",
        )
    return NotFound(
        f"stream {str(stream)!r} has versions 0 to {head}, and no version {version}",
        remedy=f"choose a version up to {head}",
        place=str(stream),
        code="events-not-found",
    )
