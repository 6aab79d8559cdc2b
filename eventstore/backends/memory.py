"""An event store in the memory of this process, for tests of services."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import cast
from uuid import UUID, uuid4

from eventstore.aggregates.aggregate import Aggregate
from eventstore.backends.batch import Batch, Draft, Part, StoredStreams, check_bounds, require_partitions, stream_name
from eventstore.closing import Closing
from eventstore.erasure import Erasure, KeyStore, PersonalData, new_data_key
from eventstore.errors import StreamDeleted, WrongExpectedVersion
from eventstore.event_types import EventType
from eventstore.fields.conversions import aware_utc
from eventstore.fields.serialization import AvroDecoder, schema_id_of
from eventstore.identifiers import (
    ARCHIVED_HEAD,
    DELETED_HEAD,
    ExpectedVersion,
    Position,
    StreamName,
    accepted_heads,
    check_category,
    check_source,
    check_subject,
    check_topic,
)
from eventstore.personal.sealing import DataKey, Origin
from eventstore.schema_check import require_readable
from eventstore.schema_registry import RegisteredSchema, check_same, unknown_schema
from eventstore.snapshots import AggregateSnapshot
from eventstore.store import AppendResult, Category, FenceStatus, RecordedCommand, RecordedEvent, StreamAppend
from eventstore.topics import DEFAULT_PARTITIONS, DEFAULT_SOURCE, topic_of_category


class MemoryKeys:
    """A key store that ends with the process; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[UUID, DataKey | None] = {}
        self._by_subject: dict[str, DataKey] = {}
        self._destroyed: list[UUID] = []

    def keys_for(self, subjects: Collection[str]) -> Mapping[str, DataKey]:
        """Return the key of each subject, a new one where it has none or its last was destroyed."""
        with self._lock:
            for subject in subjects:
                if subject not in self._by_subject:
                    key = self._by_subject[subject] = new_data_key(uuid4())
                    self._by_id[key.id] = key
            return {subject: self._by_subject[subject] for subject in subjects}

    def keys(self, ids: Collection[UUID]) -> Mapping[UUID, DataKey | None]:
        """Return keys by id, None for those destroyed, nothing for those that were never here."""
        with self._lock:
            return {id: self._by_id[id] for id in ids if id in self._by_id}

    def erase(self, subject: str) -> int:
        """Destroy the key of a subject."""
        with self._lock:
            key = self._by_subject.pop(subject, None)
            if key is not None:
                self._by_id[key.id] = None
                self._destroyed.append(key.id)
            return 0 if key is None else 1

    def rotate(self) -> int:
        """Nothing wraps these keys."""
        return 0

    def erasures(self) -> int:
        """Return how many keys were ever destroyed."""
        return len(self._destroyed)

    def destroyed(self, first: int, last: int) -> list[UUID]:
        """Return the keys of some erasures in their order, counted from 0, ``last`` exclusive."""
        return self._destroyed[first:last]

    def close(self) -> None:
        """Nothing is open."""


class MemoryCatalogue:
    """Categories by name and schemas by id; safe for threads, as its dictionaries are."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._categories: dict[str, Category] = {}
        self._schemas: dict[int, RegisteredSchema] = {}

    def keep(self, kinds: Collection[EventType]) -> None:
        """Keep the schemas of event types; SchemaError, SchemaIncompatible."""
        require_readable([kind for kind in kinds if kind.schema_id not in self._schemas], self._schemas.values())
        for kind in kinds:
            if (known := self._schemas.setdefault(kind.schema_id, kind.registered)) is not kind.registered:
                check_same(known, kind.registered)

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema; UnknownSchema."""
        if schema_id not in self._schemas:
            raise unknown_schema(schema_id, "memory")
        return self._schemas[schema_id]

    def schemas(self) -> list[RegisteredSchema]:
        """Return every schema, by id."""
        return [self._schemas[schema_id] for schema_id in sorted(self._schemas)]

    def ensure(self, name: str, *, partitions: int = DEFAULT_PARTITIONS, topic: str | None = None) -> Category:
        """Return a category, a new one where there is none; InvalidIdentifier."""
        if (known := self._categories.get(check_category(name))) is not None:
            return known
        chosen = topic or topic_of_category(name, source=self._source)
        offered = Category(name, check_topic(chosen), partitions=partitions, generation=1)
        return self._categories.setdefault(name, offered)

    def declare(self, name: str, *, partitions: int, topic: str | None) -> Category:
        """Return a category of so many partitions; InvalidArgument where it has others."""
        return require_partitions(self.ensure(name, partitions=partitions, topic=topic), partitions)

    def categories(self) -> list[Category]:
        """Return every category, by name."""
        return [self._categories[name] for name in sorted(self._categories)]


# One writer at a time: the position is the order of appends, as in SQLite.
_ORDER_XID = 0
_BEFORE_ALL = Position(_ORDER_XID, 0)


class MemoryEventStore(StoredStreams, Closing):
    """An event store for threads of one process. Nothing is written anywhere.

    Events pass through Avro as in every other store. What another store would refuse is refused here.

    Args:
        source: The CloudEvents source of all events.
        clock: Gives the time of events.
        new_id: Makes the ids of events that come without one, by default UUIDs of version 7.
        keys: A key store, for events with personal fields.

    Examples:
        >>> service = Dispatcher(MemoryEventStore())
    """

    def __init__(
        self,
        *,
        source: str = DEFAULT_SOURCE,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], UUID] | None = None,
        keys: KeyStore | None = None,
    ) -> None:
        self._keys = keys or MemoryKeys()
        self._personal = PersonalData(self._keys)
        self._source, self._clock, self._new_id = check_source(source), clock, new_id
        self._lock = threading.Lock()
        self._log: list[RecordedEvent | None] = []  # None was deleted: a position is never used again
        self._streams: dict[str, list[RecordedEvent]] = {}
        self._deleted: set[str] = set()
        self._archived: set[str] = set()
        self._by_id: dict[UUID, RecordedEvent] = {}
        self._commands: dict[UUID, tuple[str, str]] = {}
        self._catalogue = MemoryCatalogue(self._source)
        self._snapshots: dict[str, AggregateSnapshot] = {}
        self._subjects: dict[str, set[str]] = {}
        self._decoder = AvroDecoder(self._catalogue.schema)

    def create_tables(self) -> None:
        """Do nothing: this store has no tables."""

    def register(self, *aggregates: type[Aggregate]) -> None:
        """Store the categories and schemas of aggregates before their first event."""
        for aggregate in aggregates:
            self._catalogue.ensure(aggregate.category)
            self._catalogue.keep(aggregate.event_types.values())

    def declare_category(self, name: str, *, partitions: int, topic: str | None = None) -> Category:
        """Create a category with a partition count of its own. Raises InvalidArgument if it has another."""
        return self._catalogue.declare(name, partitions=partitions, topic=topic)

    def categories(self) -> list[Category]:
        """Return every category, by name."""
        return self._catalogue.categories()

    def schemas(self) -> list[RegisteredSchema]:
        """Return every registered schema, by id."""
        return self._catalogue.schemas()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema. Raises UnknownSchema."""
        return self._catalogue.schema(schema_id)

    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, all or none.

        Raises WrongExpectedVersion, InvalidArgument, InvalidEventData or EventIdTaken.
        """
        if not appends:
            return []
        draft = Draft.of(appends)
        categories = {name: self._catalogue.ensure(name) for name in draft.categories}
        batch = draft.batch(
            categories, source=self._source, clock=self._clock, new_id=self._new_id, personal=self._personal
        )
        with self._lock:
            self._catalogue.keep(draft.types.values())
            for subject, stream in draft.subjects:
                self._subjects.setdefault(subject, set()).add(stream)
            return self._earlier(batch) or self._record(batch)

    def _part(self, part: Part) -> Iterator[RecordedEvent]:
        events = self._streams.get(part.stream, [])
        last = len(events) - 1 if part.last is None else part.last
        if part.until is not None:
            last = min(last, next((e.version for e in events if e.time > part.until), len(events)) - 1)
        read = events[part.first : last + 1]
        return map(self._opened, islice(reversed(read) if part.backwards else iter(read), part.limit))

    def read_all(
        self, *, after: Position | None = None, category: str | None = None, limit: int | None = None
    ) -> Iterator[RecordedEvent]:
        """Yield events in the order in which they were appended. Raises InvalidIdentifier for what is no category."""
        check_bounds(limit=limit)
        if category is not None:
            check_category(category)
        return map(self._opened, islice(self._present(after, category), limit))

    def erase(self, subject: str) -> Erasure:
        """Destroy the keys of a subject, as `SqlEventStore.erase` says."""
        streams = sorted(self._subjects.get(check_subject(subject), ()))
        with self._lock:
            dropped = [stream for stream in streams if self._snapshots.pop(stream, None) is not None]
        return Erasure(subject, self._keys.erase(subject), streams, len(dropped))

    def _opened(self, event: RecordedEvent) -> RecordedEvent:
        schema = self._catalogue.schema(event.schema_id)
        if not schema.personal:
            return event
        (data,) = self._personal.disclose([(schema, dict(event.data), Origin(event.stream, event.id.hex))])
        return replace(event, data=data)

    def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""
        events = self._streams.get(str(stream_name(stream)))
        return None if events is None else events[-1].version

    def delete_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> int:
        """Delete a stream for good, as `EventStore.delete_stream` says."""
        name = str(stream_name(stream))
        low, high = accepted_heads(expected)
        with self._lock:
            events = self._streams.get(name, [])
            if name in self._deleted:
                return 0
            if not low <= len(events) - 1 <= high:
                raise WrongExpectedVersion(name, expected, len(events) - 1 if events else None)
            for event in self._streams.pop(name, []):
                self._log[event.position.position - 1] = None
                del self._by_id[event.id]
                self._commands.pop(event.id, None)
            if events:
                self._deleted.add(name)
            self._snapshots.pop(name, None)
            self._archived.discard(name)
        return len(events)

    def archive_stream(self, stream: StreamName | str, *, expected: ExpectedVersion) -> None:
        """Close a finished stream, as `EventStore.archive_stream` says."""
        name = str(stream_name(stream))
        low, high = accepted_heads(expected)
        with self._lock:
            if name in self._deleted:
                raise StreamDeleted(name)
            head = len(self._streams.get(name, ())) - 1
            if not max(low, 0) <= head <= high:
                raise WrongExpectedVersion(name, expected, None if head < 0 else head)
            self._archived.add(name)
            self._snapshots.pop(name, None)

    def unarchive_stream(self, stream: StreamName | str) -> None:
        """Let an archived stream take events again."""
        self._archived.discard(str(stream_name(stream)))

    def is_archived(self, stream: StreamName | str) -> bool:
        """Say whether a stream is archived."""
        return str(stream_name(stream)) in self._archived

    def archived_streams(self, category: str | None = None) -> Iterator[str]:
        """Yield the names of archived streams, all or a category's, in their order."""
        if category is not None:
            check_category(category)
        return (n for n in sorted(self._archived) if category is None or StreamName.parse(n).category == category)

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        event = self._by_id.get(event_id)
        return None if event is None else self._opened(event)

    def commands_of(self, ids: Sequence[UUID]) -> dict[UUID, RecordedCommand]:
        """Return the commands that are stored with events, by the ids of these events."""
        return self._personal.commands({one: self._commands[one] for one in ids if one in self._commands})

    def snapshot(self, stream: str) -> AggregateSnapshot | None:
        """Return a stream's aggregate snapshot, None without one."""
        return self._snapshots.get(stream)

    def save_snapshot(self, snapshot: AggregateSnapshot) -> None:
        """Store an aggregate snapshot, unless a newer one of the same shape exists."""
        with self._lock:
            known = self._snapshots.get(snapshot.stream)
            same_shape = known is not None and schema_id_of(known.payload) == schema_id_of(snapshot.payload)
            if known is None or not same_shape or known.version < snapshot.version:
                self._snapshots[snapshot.stream] = snapshot

    def last_position(self, category: str, *, before: datetime | None = None) -> Position | None:
        """Return the position of a category's last event, or of the last one before the first event of a moment."""
        events = self._present(None, category)
        if before is not None:
            moment = aware_utc(before)
            events = list(takewhile(lambda event: event.time < moment, events))
        return events[-1].position if events else None

    def fence(self) -> FenceStatus:
        """Return that no reader waits: appended events are visible at once."""
        return FenceStatus(waiting=0, age=0.0, holder=None)

    def backlog(self, after: Position | None, *, category: str) -> tuple[int, datetime | None]:
        """Return how many events of a category come after a position, and the time of the first of them."""
        events = self._present(after, category)
        return len(events), events[0].time if events else None

    def close(self) -> None:
        """Do nothing: the store holds no connection."""

    def _present(self, after: Position | None, category: str | None) -> list[RecordedEvent]:
        reached = after or _BEFORE_ALL
        first = max(reached.position, 0) if reached.order_xid == _ORDER_XID else 0
        present = [e for e in self._log[first:] if e is not None and e.position > reached]
        return [e for e in present if category is None or StreamName.parse(e.stream).category == category]

    def _earlier(self, batch: Batch) -> list[AppendResult] | None:
        """The results of an append whose events are all there already, in the same places."""
        known = [self._by_id.get(event_id) for event_id in batch.events.ids] if batch.events.named else []
        recorded = [event for event in known if event is not None]
        return batch.placed(recorded) if len(recorded) == len(batch.events.ids) else None

    def _record(self, batch: Batch) -> list[AppendResult]:
        heads = [self._head(name) for name in batch.streams.names]
        batch.check_heads(heads)
        ids = batch.events.ids
        if len(set(ids)) < len(ids) or not self._by_id.keys().isdisjoint(ids):
            raise batch.id_taken()
        events = [self._recorded(batch, row, heads) for row in range(len(ids))]
        for event, command in zip(events, batch.events.commands, strict=True):
            if command is not None:
                self._commands[event.id] = (command, event.stream)
            self._log.append(event)
            self._by_id[event.id] = event
            self._streams.setdefault(event.stream, []).append(event)
        return cast("list[AppendResult]", batch.placed(events, repeated=False))

    def _head(self, name: str) -> int:
        if name in self._archived:
            return ARCHIVED_HEAD
        return DELETED_HEAD if name in self._deleted else len(self._streams.get(name, ())) - 1

    def _recorded(self, batch: Batch, row: int, heads: list[int]) -> RecordedEvent:
        columns, stream = batch.events, batch.events.stream[row] - 1
        schema, data = self._decoder.decode(columns.payloads[row])
        return RecordedEvent(
            id=columns.ids[row],
            stream=batch.streams.names[stream],
            version=heads[stream] + columns.number[row],
            type=columns.types[row],
            schema_id=schema.id,
            schema_version=schema.version,
            data=data,
            metadata=columns.metadata[row],
            time=batch.time,
            position=Position(_ORDER_XID, len(self._log) + row + 1),
        )
