"""The events of a store as a log to look at."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Final

from eventstore.identifiers import Position
from eventstore.inspection.entries import Entry
from eventstore.inspection.selection import EVERYTHING, Selection
from eventstore.messages import RecordedEvent
from eventstore.shown_urls import shown_url

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
