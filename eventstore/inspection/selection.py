"""Which events to look at: by stream, category, type, time and correlation.

One entry of a log as it is looked at: an event of a store, or a record of a topic, which may be no event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event
from typing import Any, Literal, Protocol

from eventstore.backends.batch import check_bounds
from eventstore.errors import InvalidArgument
from eventstore.fields.conversions import aware_utc
from eventstore.identifiers import StreamName, check_category, check_type_name
from eventstore.store import Metadata, RecordedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Events that match all given conditions. A condition that is not given selects everything. Bounds are included.

    Attributes:
        streams: Names of streams.
        categories: Names of categories.
        types: Event types, as they are stored.
        since: The earliest time, which needs a time zone.
        until: The latest time.
        correlation_id: The conversation.
        from_version: The lowest version of an event in its stream.
        to_version: The highest version.

    Raises:
        InvalidEventData: A time has no time zone.
        InvalidArgument: A version is below zero, or an upper bound below the lower one.
        InvalidIdentifier: No metadata can have this correlation id.

    Examples:
        >>> placed = Selection(streams=("order-o1",), types=("order.placed",))
        >>> [entry.data for entry in StoreLog(store).last(placed, limit=10)]
        [{'customer_id': 7, 'quantity': 2}]
    """

    streams: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    correlation_id: str | None = None
    from_version: int | None = None
    to_version: int | None = None

    def __post_init__(self) -> None:
        Metadata(correlation_id=self.correlation_id)  # which has rules of its own
        for bound in ("since", "until"):
            if (moment := getattr(self, bound)) is not None:
                object.__setattr__(self, bound, aware_utc(moment))
        if self.since is not None and self.until is not None and self.until < self.since:
            raise _empty(self.since.isoformat(), self.until.isoformat())
        check_bounds(from_version=self.from_version or 0, to_version=self.to_version)
        if self.to_version is not None and self.to_version < (self.from_version or 0):
            raise _empty(f"version {self.from_version}", f"version {self.to_version}")

    def require_names(self) -> None:
        """Raise InvalidIdentifier for a name that no store has. Topics of other systems have names of any form."""
        for stream in self.streams:
            StreamName.parse(stream)
        for category in self.categories:
            check_category(category)
        for name in self.types:
            check_type_name(name)

    @property
    def is_everything(self) -> bool:
        """Whether it selects every event."""
        return self == EVERYTHING

    def has_stream(self, stream: str | None) -> bool:
        """Say whether events of a stream are selected, by its name and by its category."""
        if self.streams and stream not in self.streams:
            return False
        return not self.categories or (stream or "").partition("-")[0] in self.categories

    def has_version(self, version: int | None) -> bool:
        """Say whether a version is within the bounds. With bounds, a record without a version is not."""
        if self.from_version is None and self.to_version is None:
            return True
        first, last = self.from_version or 0, self.to_version
        return version is not None and version >= first and (last is None or version <= last)

    def has_time(self, moment: datetime) -> bool:
        """Say whether a moment is within the bounds."""
        return not (self.since and moment < self.since) and not (self.until and moment > self.until)


def _empty(lower: str, upper: str) -> InvalidArgument:
    return InvalidArgument(
        f"no event is from {lower} to {upper}, which is before it",
        remedy="swap the two bounds, or leave one of them out",
        code="invalid-bound",
    )


EVERYTHING = Selection()


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
