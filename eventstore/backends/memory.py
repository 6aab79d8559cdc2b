"""An event store in the memory of this process: for tests of services, and gone with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import cast
from uuid import UUID

from eventstore.backends.batch import Batch, Draft, stream_name
from eventstore.backends.memory_keys import MemoryKeys
from eventstore.closing import Closing
from eventstore.compatibility import require_readable
from eventstore.conversions import aware_utc
from eventstore.erasure import Erasure, KeyStore, PersonalData
from eventstore.errors import StreamDeleted, WrongExpectedVersion
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
)
from eventstore.messages import Metadata, RecordedEvent
from eventstore.schema_registry import RegisteredSchema
from eventstore.serialization import AvroDecoder, schema_id_of
from eventstore.snapshots import AggregateSnapshot
from eventstore.store import AppendResult, Category, StreamAppend

# One writer at a time: the position is the order of appends, as in SQLite.
_ORDER_XID = 0


class MemoryEventStore(Closing):
    """Everything an event store does, for threads of one process; nothing is written anywhere.

    Events pass through Avro as in every other store, so what one would refuse is refused here.
    """

    def __init__(
        self,
        *,
        source: str = "/memory",
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
        self._schemas: dict[int, RegisteredSchema] = {}
        self._snapshots: dict[str, AggregateSnapshot] = {}
        self._subjects: dict[str, set[str]] = {}
        self._decoder = AvroDecoder(self._schemas.__getitem__)

    def append(
        self,
        stream: StreamName | str,
        events: Sequence[object],
        *,
        expected: ExpectedVersion,
        metadata: Metadata | None = None,
    ) -> AppendResult:
        """Append to one stream; the errors of `append_batch`."""
        return self.append_batch([StreamAppend(stream, events, expected, metadata)])[0]

    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, all or none; WrongExpectedVersion, InvalidAppend, InvalidEventData, EventIdTaken."""
        if not appends:
            return []
        draft = Draft.of(appends)
        categories = {name: Category(name, name, partitions=1, generation=1) for name in draft.categories}
        batch = draft.batch(
            categories, source=self._source, clock=self._clock, new_id=self._new_id, personal=self._personal
        )
        with self._lock:
            require_readable(
                [kind for kind in draft.types.values() if kind.schema_id not in self._schemas], self._schemas.values()
            )
            for subject, stream in draft.subjects:
                self._subjects.setdefault(subject, set()).add(stream)
            self._schemas.update((kind.schema_id, kind.registered) for kind in draft.types.values())
            return self._earlier(batch) or self._record(batch)

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
        """Yield one stream's events by version, both bounds included, as `EventStore.read_stream` says."""
        events = self._streams.get(str(stream_name(stream)), [])
        last = len(events) - 1 if to_version is None else to_version
        if until is not None:
            moment = aware_utc(until)
            last = min(last, next((e.version for e in events if e.time > moment), len(events)) - 1)
        part = events[from_version : last + 1]
        return map(self._opened, islice(reversed(part) if backwards else iter(part), limit))

    def read_all(
        self, *, after: Position | None = None, category: str | None = None, limit: int | None = None
    ) -> Iterator[RecordedEvent]:
        """Yield events in the order in which they were appended; InvalidIdentifier for what is no category."""
        if category is not None:
            check_category(category)
        events = self._log[0 if after is None else after.position :]
        present = (e for e in events if e is not None)
        wanted = (e for e in present if category is None or StreamName.parse(e.stream).category == category)
        return map(self._opened, islice(wanted, limit))

    def erase(self, subject: str) -> Erasure:
        """Destroy the keys of a subject, as `SqlEventStore.erase` says."""
        streams = sorted(self._subjects.get(check_subject(subject), ()))
        with self._lock:
            dropped = [stream for stream in streams if self._snapshots.pop(stream, None) is not None]
        return Erasure(subject, self._keys.erase(subject), streams, len(dropped))

    def _opened(self, event: RecordedEvent) -> RecordedEvent:
        schema = self._schemas[event.schema_id]
        if not schema.personal:
            return event
        (data,) = self._personal.disclose([(schema, dict(event.data))])
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

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        found = self._by_id.get(event_id)
        return None if found is None else self._opened(found)

    def snapshot(self, stream: str) -> AggregateSnapshot | None:
        """Return a stream's aggregate snapshot, None without one."""
        return self._snapshots.get(stream)

    def keep_snapshot(self, snapshot: AggregateSnapshot) -> None:
        """Keep an aggregate snapshot, unless a newer one of the same shape is there."""
        with self._lock:
            known = self._snapshots.get(snapshot.stream)
            same_shape = known is not None and schema_id_of(known.payload) == schema_id_of(snapshot.payload)
            if known is None or not same_shape or known.version < snapshot.version:
                self._snapshots[snapshot.stream] = snapshot

    def close(self) -> None:
        """Nothing is open."""

    def _earlier(self, batch: Batch) -> list[AppendResult] | None:
        """The results of an append whose events are all there already, in the same places."""
        known = [self._by_id.get(event_id) for event_id in batch.events.ids] if batch.events.named else []
        found = [event for event in known if event is not None]
        return batch.placed(found) if len(found) == len(batch.events.ids) else None

    def _record(self, batch: Batch) -> list[AppendResult]:
        heads = [self._head(name) for name in batch.streams.names]
        batch.check_heads(heads)
        ids = batch.events.ids
        if len(set(ids)) < len(ids) or not self._by_id.keys().isdisjoint(ids):
            raise batch.id_taken()
        events = [self._recorded(batch, row, heads) for row in range(len(ids))]
        for event in events:
            self._log.append(event)
            self._by_id[event.id] = event
            self._streams.setdefault(event.stream, []).append(event)
        return cast("list[AppendResult]", batch.placed(events))

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
