"""The events of a store as a log to look at.

The state of a stream at a version, and what the event of that version changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import DeclarationError, KeysMissing, NotFound
from eventstore.identifiers import Position, StreamName
from eventstore.inspection.selection import EVERYTHING, Entry, Selection
from eventstore.shown_urls import shown_url
from eventstore.store import RecordedEvent, Streams

if TYPE_CHECKING:
    from eventstore.backends.sql.store import SqlEventStore


# Two indexed queries each time; a reader at a terminal takes a quarter of a second for at once.
_GLANCE_SECONDS: Final = 0.25


class StoreLog:
    """A store, read in pages behind the fence. The caller closes the store.

    Examples:
        >>> for entry in StoreLog(store).read(Selection(categories=("order",))):
        ...     print(entry.place, entry.data)
        order-o1@0 {'customer_id': 7, 'quantity': 2}
    """

    def __init__(self, store: SqlEventStore, *, name: str | None = None) -> None:
        self._store = store
        self._name = name or shown_url(store.engine.url)

    @property
    def name(self) -> str:
        """The store's URL without its password, unless another name was given."""
        return self._name

    def last(self, selection: Selection, *, limit: int) -> list[Entry]:
        """Return the last events of a selection, the oldest first.

        Raises StoreUnavailable, StoreNotPrepared or InvalidArgument.
        """
        return self._last(selection, limit, before=None)

    def read(self, selection: Selection) -> Iterator[Entry]:
        """Yield each event of a selection in store order: `place`, `time` and `data`. Raises the errors of `last`."""
        return map(self.entry, self._store.read_selected(selection))

    def follow(self, selection: Selection, *, limit: int, stop: Event) -> Iterator[Entry]:
        """Yield the last events, then each that is appended until `stop` is set. Raises the errors of `last`."""
        reached = newest_position(self._store)
        # Without any event there is nothing to show first, and what comes now is new.
        yield from self._last(selection, limit, before=behind(reached)) if reached is not None else ()
        while not stop.is_set():
            end = newest_position(self._store)
            if end is not None and end != reached:
                added = self._store.read_selected(selection, after=reached, before=behind(end))
                yield from map(self.entry, added)
                reached = end
            else:
                stop.wait(_GLANCE_SECONDS)

    def entry(self, event: RecordedEvent) -> Entry:
        """Return an event of the store as an entry of this log."""
        return Entry.of_event(event, log=self._name)

    def _last(self, selection: Selection, limit: int, *, before: Position | None) -> list[Entry]:
        events = self._store.read_selected(selection, before=before, newest_first=True, limit=limit)
        return [self.entry(event) for event in events][::-1]


def newest_position(store: SqlEventStore) -> Position | None:
    """Return the position of the newest event behind the fence, None without any."""
    newest = store.read_selected(EVERYTHING, newest_first=True, limit=1)
    return next((event.position for event in newest), None)


def behind(position: Position) -> Position:
    """Return the bound that leaves out what comes after a position, and not the position itself."""
    return Position(position.order_xid, position.position + 1)


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
