"""The signatures that the streams of every store share: one append is a batch, and bounds are checked before a read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from eventstore.backends.batch import check_bounds, stream_name
from eventstore.fields.conversions import aware_utc
from eventstore.identifiers import ExpectedVersion, StreamName
from eventstore.messages import Metadata, RecordedEvent
from eventstore.store import AppendResult, StreamAppend


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a stream that a reader asks for.

    Attributes:
        stream: The stream.
        first: The first version.
        last: The last version, None without a bound.
        until: The moment in UTC after which no event is read, None without one.
        backwards: Whether reading begins at the highest version.
        limit: The number of events at most.
    """

    stream: str
    first: int
    last: int | None
    until: datetime | None
    backwards: bool
    limit: int | None


class StoredStreams(ABC):
    """Streams of one store, as `eventstore.store.Streams` declares them."""

    def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
    ) -> AppendResult:
        """Append to one stream. Raises the errors of `append_batch`."""
        return self.append_batch([StreamAppend(stream, events, expected, metadata)])[0]

    @abstractmethod
    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, all or none."""

    def read_stream(
        self,
        stream: StreamName | str,
        *,
        from_version: int = 0,
        to_version: int | None = None,
        until: datetime | None = None,
        backwards: bool = False,
        limit: int | None = None,
    ) -> Iterator[RecordedEvent]:
        """Yield one stream's events by version, both bounds included. An unknown stream has none.

        Args:
            stream: The stream.
            from_version: The first version.
            to_version: The last version, by default the newest.
            until: Stop before the first event recorded after this moment, even if a clock went backwards. Raises
                InvalidEventData for a moment without a time zone.
            backwards: Begin at the highest version.
            limit: The number of events at most.
        """
        check_bounds(from_version=from_version, to_version=to_version, limit=limit)
        moment = None if until is None else aware_utc(until)
        return self._part(Part(str(stream_name(stream)), from_version, to_version, moment, backwards, limit))

    @abstractmethod
    def _part(self, part: Part) -> Iterator[RecordedEvent]: ...
