"""Events on their way in: encoded, numbered, and laid out in columns for one statement.

The signatures that the streams of every store share: one append is a batch, and bounds are checked before a read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from types import NoneType
from typing import Any
from uuid import UUID

from eventstore.erasure import PersonalData, Sealer
from eventstore.errors import (
    EventIdTaken,
    InvalidArgument,
    StreamArchived,
    StreamDeleted,
    WrongExpectedVersion,
)
from eventstore.event_types import EventType, type_of_object
from eventstore.identifiers import (
    ARCHIVED_HEAD,
    DELETED_HEAD,
    NO_VERSION,
    ExpectedVersion,
    Position,
    StreamName,
    accepted_heads,
    require_type,
)
from eventstore.personal.sealing import Origin
from eventstore.store import (
    NO_METADATA,
    AppendResult,
    Category,
    Metadata,
    NewEvent,
    StreamAppend,
)
from eventstore.topics import MAX_EVENT_BYTES, partition_of

_NO_ID = UUID(int=0)
_CLOSED = {DELETED_HEAD: StreamDeleted, ARCHIVED_HEAD: StreamArchived}


@dataclass(slots=True)
class StreamColumns:
    """One row a stream; `low` and `high` bound the head version the writer accepts."""

    names: list[str] = field(default_factory=list)
    expected: list[ExpectedVersion] = field(default_factory=list)
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


@dataclass(slots=True)
class EventColumns:
    """One row an event; `stream` and `number` count from 1, metadata columns are empty where all are None.

    `named` says whether every event came with an id of its own: such an append may be a repetition.
    """

    stream: list[int] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    ids: list[UUID] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    schema_ids: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    metadata: list[Metadata] = field(default_factory=list)
    commands: list[str | None] = field(default_factory=list)
    named: bool = False

    def metadata_column(self, name: str) -> list[str | None]:
        """Return one metadata field of every event, or nothing where no event has it."""
        values: list[str | None] = [getattr(metadata, name) for metadata in self.metadata]
        return values if any(value is not None for value in values) else []


@dataclass(frozen=True, slots=True)
class Batch:
    """All that one append statement needs."""

    streams: StreamColumns
    events: EventColumns
    source: str
    time: datetime

    @property
    def ce_time(self) -> str:
        """The time as RFC 3339 with microseconds, always six digits."""
        return rfc3339(self.time)

    def check_heads(self, heads: Sequence[int]) -> None:
        """Raise WrongExpectedVersion, StreamDeleted or StreamArchived for the first stream that refuses its events."""
        streams = self.streams
        for stream, head in enumerate(heads):
            if head in _CLOSED:
                raise _CLOSED[head](streams.names[stream])
            if not streams.low[stream] <= head <= streams.high[stream]:
                actual = None if head == NO_VERSION else head
                raise WrongExpectedVersion(streams.names[stream], streams.expected[stream], actual)

    def placed(self, rows: Sequence[Any]) -> list[AppendResult] | None:
        """Return the results of this append, whose events stand in these rows; None where they stand otherwise."""
        results, in_order = [], iter(rows)
        for name, count in zip(self.streams.names, self.streams.counts, strict=True):
            part = list(islice(in_order, count))
            versions = range(part[0].version, part[0].version + count)
            if any((row.stream, row.version) != (name, version) for row, version in zip(part, versions, strict=True)):
                return None
            positions = tuple(Position(row.order_xid, row.position) for row in part)
            ids, schema_ids = tuple(row.id for row in part), tuple(row.schema_id for row in part)
            time = datetime.fromisoformat(part[0].ce_time)
            results.append(AppendResult(name, versions, positions, ids, time, schema_ids, repeated=True))
        return results

    def id_taken(self) -> EventIdTaken:
        """Return the error for an id that another event has."""
        return EventIdTaken(
            "an event with one of these ids was appended before, in another append",
            remedy="give each event an id of its own. To repeat an append, repeat it with all its events and their ids",
            place=", ".join(self.streams.names[:3]),
        )


@dataclass(frozen=True, slots=True)
class Inserted:
    """What the statement answered: heads and order by stream, positions by event."""

    heads: Sequence[int]
    order_xids: Sequence[int]
    positions: Sequence[int]

    def results(self, batch: Batch) -> list[AppendResult]:
        """Cut the answer into one result a stream."""
        results, start = [], 0
        for row, name in enumerate(batch.streams.names):
            count, xid, first = batch.streams.counts[row], self.order_xids[row], self.heads[row] + 1
            positions = tuple(Position(xid, p) for p in self.positions[start : start + count])
            ids = tuple(batch.events.ids[start : start + count])
            schema_ids = tuple(batch.events.schema_ids[start : start + count])
            versions = range(first, first + count)
            results.append(AppendResult(name, versions, positions, ids, batch.time, schema_ids))
            start += count
        return results


@dataclass(frozen=True)
class Draft:
    """Appends with their names and event types known, before anything was encoded."""

    appends: Sequence[StreamAppend]
    names: Sequence[StreamName]
    types: Mapping[type, EventType]

    @property
    def categories(self) -> frozenset[str]:
        """The categories these streams belong to."""
        return frozenset(name.category for name in self.names)

    @classmethod
    def of(cls, appends: Sequence[StreamAppend]) -> Draft:
        """Check names and events; InvalidArgument, InvalidIdentifier, InvalidEventData, DeclarationError."""
        names = [stream_name(append.stream) for append in appends]
        _check_appends(appends, names)
        samples = {type(bare(event)): bare(event) for append in appends for event in append.events}
        return cls(appends, names, {kind: type_of_object(sample) for kind, sample in samples.items()})

    def batch(
        self,
        categories: Mapping[str, Category],
        *,
        source: str,
        clock: Callable[[], datetime],
        new_id: Callable[[], UUID] | None = None,
        personal: PersonalData | None = None,
    ) -> Batch:
        """Encode every event; InvalidEventData, InvalidArgument, KeysMissing. ``new_id`` gives ids to those without."""
        sealer = (personal or PersonalData(None)).sealer({subject for subject, _ in self.subjects})
        batch = Batch(StreamColumns(), EventColumns(), source, clock().astimezone(UTC))
        ids = [_id_of(event) for append in self.appends for event in append.events]
        batch.events.named = _NO_ID not in ids
        batch.events.ids = _filled(ids) if new_id is None else [new_id() if i is _NO_ID else i for i in ids]
        filled = iter(batch.events.ids)
        for append, name in zip(self.appends, self.names, strict=True):
            self._add_stream(batch.streams, append, name, categories[name.category])
            self._add_events(batch, append, sealer, filled)
        return batch

    def _add_stream(self, streams: StreamColumns, append: StreamAppend, name: StreamName, category: Category) -> None:
        stream = str(name)
        low, high = accepted_heads(append.expected)
        streams.names.append(stream)
        streams.expected.append(append.expected)
        streams.low.append(low)
        streams.high.append(high)
        streams.categories.append(category.name)
        streams.topics.append(category.topic)
        streams.partitions.append(partition_of(stream, category.partitions))
        streams.counts.append(len(append.events))

    @cached_property
    def subjects(self) -> list[tuple[str, str]]:
        """The subjects of events and commands with personal values (first) and their streams (second)."""
        commands = [(s, name) for new, name in self._new if new.command for s in new.command.subjects.values()]
        events = [(s, name) for kind, event, name in self._personal for s in kind.subjects(event, name.id)]
        return [(subject, str(name)) for subject, name in (*events, *commands)]

    @property
    def _new(self) -> Iterator[tuple[NewEvent, StreamName]]:
        pairs = ((event, name) for a, name in zip(self.appends, self.names, strict=True) for event in a.events)
        return ((event, name) for event, name in pairs if isinstance(event, NewEvent))

    @cached_property
    def _personal(self) -> list[tuple[EventType, object, StreamName]]:
        kinds = {cls: kind for cls, kind in self.types.items() if kind.personal}
        if not kinds:
            return []
        events = ((bare(event), name) for a, name in zip(self.appends, self.names, strict=True) for event in a.events)
        return [(kinds[type(event)], event, name) for event, name in events if type(event) in kinds]

    def _add_events(self, batch: Batch, append: StreamAppend, sealer: Sealer, ids: Iterator[UUID]) -> None:
        rows, stream, name = batch.events, len(batch.streams.names), batch.streams.names[-1]
        metadata = append.metadata or NO_METADATA
        for number, offered in enumerate(append.events, start=1):
            new = offered if isinstance(offered, NewEvent) else None
            event = offered if new is None else new.event
            kind, event_id = self.types[type(event)], next(ids)
            encoded = sealer(kind, event, Origin(name, event_id.hex)) if kind.personal else kind.encode(event)
            rows.stream.append(stream)
            rows.number.append(number)
            rows.types.append(kind.name)
            rows.schema_ids.append(kind.schema_id)
            rows.payloads.append(_publishable(encoded, kind))
            command = None if new is None else new.command
            rows.commands.append(None if command is None else sealer.command(command, Origin(name, event_id.hex)))
            rows.metadata.append(metadata if new is None or new.metadata is None else new.metadata)


def _publishable(payload: bytes, kind: EventType) -> bytes:
    if len(payload) <= MAX_EVENT_BYTES:
        return payload
    raise InvalidArgument(
        f"an event {kind.name} of {len(payload):,} bytes is longer than a topic takes ({MAX_EVENT_BYTES:,})",
        remedy="store the large payload elsewhere and put its URL and digest in the event, or split the event",
        place=kind.name,
        code="event-too-large",
    )


def bare(event: object) -> object:
    """Return the event object itself, out of its NewEvent if it is in one."""
    return event.event if isinstance(event, NewEvent) else event


def _id_of(event: object) -> UUID:
    return event.id if isinstance(event, NewEvent) and event.id is not None else _NO_ID


def stream_name(stream: StreamName | str) -> StreamName:
    """Return the validated name; InvalidIdentifier."""
    return stream if isinstance(stream, StreamName) else StreamName.parse(stream)


def check_bounds(**bounds: int | None) -> None:
    """Refuse to read by numbers below zero, which each store would take for something else; InvalidArgument."""
    for name, bound in bounds.items():
        require_type(bound, (int, NoneType), name, takes="a number from 0 on, or None")
        if bound is not None and bound < 0:
            raise InvalidArgument(
                f"{name}={bound} is below zero",
                remedy="versions and limits count from 0. Leave it out for no bound, and use backwards=True "
                "to read from the end",
                place=name,
                code="invalid-bound",
            )


def require_partitions(category: Category, partitions: int) -> Category:
    """Return a category that has so many partitions; InvalidArgument."""
    if category.partitions == partitions:
        return category
    raise InvalidArgument(
        f"category {category.name!r} has {category.partitions} partitions, {partitions} were asked for",
        remedy="keep the number: every stored event's place depends on it",
        place=category.name,
        code="partitions-fixed",
    )


def _check_appends(appends: Sequence[StreamAppend], names: Sequence[StreamName]) -> None:
    for append, name in zip(appends, names, strict=True):
        if not isinstance(append.events, Sequence) or isinstance(append.events, str | bytes):
            raise InvalidArgument(
                f"{append.events!r} is no list of events to append to {name}",
                remedy="give the events as a list, one event too: append(stream, [event], …)",
                place=str(name),
                code="invalid-append",
            )
        if not append.events:
            raise InvalidArgument(
                f"nothing to append to {name}",
                remedy="append at least one event",
                place=str(name),
                code="invalid-append",
            )
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(
            f"stream {twice} appears twice in one batch",
            remedy="put all events of a stream into one StreamAppend",
            place=str(twice),
            code="invalid-append",
        )


def _filled(ids: list[UUID]) -> list[UUID]:
    """Give every event without an id a new one: version 7, so that the index grows at its end."""
    millis = time.time_ns() // 1_000_000
    noise = os.urandom(10 * len(ids))
    return [
        _uuid7(millis, noise[10 * i : 10 * i + 10]) if event_id is _NO_ID else event_id
        for i, event_id in enumerate(ids)
    ]


def _uuid7(millis: int, noise: bytes) -> UUID:
    random = int.from_bytes(noise, "big")
    high, low = random >> 68, random & (2**62 - 1)
    return UUID(int=(millis & (2**48 - 1)) << 80 | 0x7 << 76 | high << 64 | 0x2 << 62 | low)


def rfc3339(moment: datetime) -> str:
    """Return a UTC time as RFC 3339 with six digits and Z."""
    # A tenth of what strftime takes, which is felt where an event is appended alone.
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
