"""One entry of a log as it is looked at: an event of a store, or a record of a topic, which may be no event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import Any, Literal, Protocol

from eventstore.inspection.selection import Selection
from eventstore.messages import RecordedEvent

Form = Literal["event", "avro", "json", "text", "bytes", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event of a store, or a record of a topic.

    Attributes:
        log: The store or the topic.
        place: The place in the log: `order-o1@3`, `order[2]@17`.
        time: When it was stored.
        form: What `data` is: an event's fields, an Avro or JSON value, a text, bytes, or None for a record without a
            value.
        data: The fields or the value.
        event: The event, if it is one.
        key: The record's key.
        headers: The record's headers.
        problem: Why a record that is not decodable Avro is shown as bytes.

    Examples:
        >>> [entry.place for entry in StoreLog(store).last(Selection(), limit=2)]
        ['order-o1@0', 'order-o1@1']
    """

    log: str
    place: str
    time: datetime
    form: Form
    data: Any
    event: RecordedEvent | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None

    @property
    def happened(self) -> datetime:
        """The event's time. For a record without an event, the record's time."""
        return self.time if self.event is None else self.event.time

    @staticmethod
    def of_event(event: RecordedEvent, *, log: str) -> Entry:
        """Return an event of a store as an entry."""
        place = f"{event.stream}@{event.version}"
        return Entry(log=log, place=place, time=event.time, form="event", data=event.data, event=event)


class ReadLog(Protocol):
    """A store or a topic whose entries are read. Reading changes nothing: no group, no offset, no checkpoint."""

    @property
    def name(self) -> str:
        """What entries call it."""

    def read(self, selection: Selection) -> Iterator[Entry]:
        """Yield every entry of a selection that is in the log now."""


class Log(ReadLog, Protocol):
    """A store or a topic that is looked at, its end and what is added included."""

    def last(self, selection: Selection, *, limit: int) -> list[Entry]:
        """Return the last entries of a selection, the oldest first."""

    def follow(self, selection: Selection, *, limit: int, stop: Event) -> Iterator[Entry]:
        """Yield the last entries, then each that is added until `stop` is set; none twice, none left out."""
