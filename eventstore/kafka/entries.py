"""The records of a topic as a log for inspection: events in Avro, JSON, and any other records."""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from uuid import UUID

from eventstore.closing import Closing
from eventstore.erasure import KeyStore, PersonalData
from eventstore.errors import KafkaError, NotFound, SchemaError, TopicMissing, UnknownSchema
from eventstore.fields.serialization import FRAME, AvroDecoder
from eventstore.inspection.selection import Entry, Selection
from eventstore.kafka.admin import OffsetReader
from eventstore.kafka.consumer import RangeReader, TopicSchemas
from eventstore.personal.sealing import Origin
from eventstore.schema_registry import RegisteredSchema
from eventstore.settings import Settings
from eventstore.store import RecordedEvent
from eventstore.topics import TopicRecord, event_of

if TYPE_CHECKING:
    from eventstore.kafka.confluent_registry import ConfluentRegistry

# The last records of a partition: behind them are markers of transactions, and records that are not selected.
_WINDOW: Final = 64
_GROWTH: Final = 8
_GLANCE_SECONDS: Final = 0.25
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Offsets = Mapping[int, int]


class TopicLog(Closing):
    """A topic, read without a group. Close it, or use it in `with`.

    The times of a selection are compared with the records' time, by which the broker orders a topic.

    Args:
        topic: The topic.
        settings: The settings of Kafka.
        keys: The key store that opens personal values. Without one they stay sealed.

    Examples:
        >>> with TopicLog("order", Settings()) as log:
        ...     for entry in log.last(Selection(types=("order.placed",)), limit=20):
        ...         print(entry.place, entry.data)
    """

    def __init__(self, topic: str, settings: Settings, *, keys: KeyStore | None = None) -> None:
        self._topic = topic
        self._settings = settings
        self._personal = PersonalData(keys)
        self._offsets = OffsetReader(settings)
        self._schemas: TopicSchemas | None = None
        self._registry: ConfluentRegistry | None = None
        self._unknown: dict[int, SchemaError | KafkaError] = {}
        self._decoder = AvroDecoder(self._schema)

    @property
    def name(self) -> str:
        """The topic."""
        return self._topic

    def last(self, selection: Selection, *, limit: int) -> list[Entry]:
        """Return the last records of a selection, the oldest first.

        Raises TopicMissing, BrokerUnreachable or BrokerRefused.
        """
        begins, ends = self._bounds(selection)
        return self._last(selection, limit, begins, ends)

    def read(self, selection: Selection) -> Iterator[Entry]:
        """Yield every record of a selection that the topic holds now, in order within each partition."""
        begins, ends = self._bounds(selection)
        with RangeReader(self._settings) as reader:
            yield from self._selected(selection, self._between(reader, begins, ends))

    def follow(self, selection: Selection, *, limit: int, stop: Event) -> Iterator[Entry]:
        """Yield the last records, then each that arrives until `stop` is set. Raises the errors of `last`."""
        begins, ends = self._bounds(selection)
        yield from self._last(selection, limit, begins, ends)
        with RangeReader(self._settings) as reader:
            reader.seek({self._topic: ends})
            while not stop.is_set():
                yield from self._selected(selection, reader.poll(_GLANCE_SECONDS))

    def at(self, partition: int, offset: int) -> Entry:
        """Return the record of a place. Raises NotFound if the topic does not hold one there."""
        for record in self.records_at(offset, partition):
            return self._entry(record)
        raise NotFound(
            f"{self._topic}[{partition}]@{offset} holds no record",
            remedy="choose a place that `factfold events tail --topic` shows. Compaction and retention remove records",
            place=self._topic,
            code="events-not-found",
        )

    def records_at(self, offset: int, partition: int | None = None) -> list[TopicRecord]:
        """Return the records at an offset, as they were written: at most one for each partition, or that of one."""
        begins, ends = self._bounds(Selection())
        held = {each: offset for each, end in ends.items() if begins.get(each, 0) <= offset < end}
        places = {each: at for each, at in held.items() if partition in (None, each)}
        if not places:
            return []
        with RangeReader(self._settings) as reader:
            return list(self._between(reader, places, dict.fromkeys(places, offset + 1)))

    def find(self, event_id: UUID) -> Entry | None:
        """Return the record of an event, by the id in its header, or None. It reads the whole topic."""
        expected = str(event_id).encode()
        begins, ends = self._bounds(Selection())
        with RangeReader(self._settings) as reader:
            for record in self._between(reader, begins, ends):
                if dict(record.headers).get("ce_id") == expected:
                    return self._entry(record)
        return None

    def close(self) -> None:
        """Close the connections."""
        self._offsets.close()
        for opened in (self._schemas, self._registry):
            if opened is not None:
                opened.close()

    def _bounds(self, selection: Selection) -> tuple[dict[int, int], dict[int, int]]:
        """From where and up to where records may be selected; nothing before the first of its time is read."""
        begins, ends = (
            self._offsets.beginning_offsets([self._topic])[self._topic],
            self._offsets.end_offsets([self._topic])[self._topic],
        )
        if selection.since is not None:
            since = self._offsets.offsets_at(selection.since, [self._topic])[self._topic]
            begins = {partition: max(begin, since[partition]) for partition, begin in begins.items()}
        return begins, ends

    def _last(self, selection: Selection, limit: int, begins: Offsets, ends: Offsets) -> list[Entry]:
        """Read windows before the ends, longer ones where a partition did not give enough."""
        newest: dict[int, list[Entry]] = {}
        asked, window = {p for p, end in ends.items() if begins[p] < end}, max(_WINDOW, limit)
        with RangeReader(self._settings) as reader:
            while asked:
                starts = {p: max(begins[p], ends[p] - window) for p in asked}
                newest |= self._newest_between(selection, limit, reader, starts, {p: ends[p] for p in asked})
                asked = {p for p in asked if len(newest[p]) < limit and begins[p] < starts[p]}
                window *= _GROWTH
        return list(heapq.merge(*newest.values(), key=lambda entry: entry.time))[-limit:] if limit else []

    def _newest_between(
        self, selection: Selection, limit: int, reader: RangeReader, starts: Offsets, ends: Offsets
    ) -> dict[int, list[Entry]]:
        newest: dict[int, deque[TopicRecord]] = {p: deque(maxlen=limit) for p in starts}
        for record in self._between(reader, starts, ends):
            if _is_selected(selection, record):
                newest[record.partition].append(record)
        return {p: [self._entry(record) for record in records] for p, records in newest.items()}

    def _between(self, reader: RangeReader, begins: Offsets, ends: Offsets) -> Iterator[TopicRecord]:
        reader.seek({self._topic: begins})
        return reader.read_up_to({self._topic: ends})

    def _selected(self, selection: Selection, records: Iterable[TopicRecord]) -> Iterator[Entry]:
        return (self._entry(record) for record in records if _is_selected(selection, record))

    def _entry(self, record: TopicRecord) -> Entry:
        """What a record holds. One whose Avro cannot be decoded is shown as bytes, with the reason."""
        value, key, problem = record.value, self._key(record.key), None
        if _is_framed(value):
            try:
                schema, data = self._decoder.decode(value)
                if not any(name == "ce_id" for name, _ in record.headers):
                    return _entry(record, "avro", data, key=key)
                event = self._event(record, schema, data)
                return _entry(record, "event", event.data, key=key, event=event)
            except (SchemaError, KafkaError) as error:
                problem = error.message
        return _without_event(record, problem, key=key)

    def _event(self, record: TopicRecord, schema: RegisteredSchema, data: dict[str, Any]) -> RecordedEvent:
        event = event_of(record.headers, schema=schema, data=data, place=record.place)
        (shown,) = self._personal.disclose([(schema, data, Origin(event.stream, event.id.hex))])
        return dataclasses.replace(event, data=shown)

    def _key(self, key: bytes | None) -> str | None:
        if _is_framed(key):
            with suppress(SchemaError, KafkaError):
                return json.dumps(self._decoder.decode(key)[1], default=str, ensure_ascii=False)
        return None if key is None else key.decode(errors="backslashreplace")

    def _schema(self, schema_id: int) -> RegisteredSchema:
        """One schema. What was not known stays so, as long as the log is open: a registry is asked once."""
        if (failed := self._unknown.get(schema_id)) is not None:
            raise failed
        try:
            return self._looked_up(schema_id)
        except (SchemaError, KafkaError) as error:
            self._unknown[schema_id] = error
            raise

    def _looked_up(self, schema_id: int) -> RegisteredSchema:
        """The topic of schemas is read where there is Avro: others do without it; then a registry is asked."""
        try:
            if self._schemas is None:
                self._schemas = TopicSchemas(self._settings)
            return self._schemas.schema(schema_id)
        except (UnknownSchema, TopicMissing):
            if self._settings.registry is None:
                raise
        if self._registry is None:
            from eventstore.kafka.confluent_registry import ConfluentRegistry  # rarely needed packages

            self._registry = ConfluentRegistry(self._settings.registry)
        return self._registry.schema(schema_id)


def _is_framed(value: bytes | None) -> TypeGuard[bytes]:
    return value is not None and value[:1] == b"\0" and len(value) >= FRAME


def _is_selected(selection: Selection, record: TopicRecord) -> bool:
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    return (
        selection.has_time(_time(record))
        and (not selection.types or headers.get("ce_type") in selection.types)
        and selection.has_stream(headers.get("ce_subject"))
        and selection.has_version(_version(headers.get("ce_streamversion")))
        and selection.correlation_id in (None, headers.get("ce_correlationid"))
    )


def _version(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _without_event(record: TopicRecord, problem: str | None, *, key: str | None) -> Entry:
    value = record.value
    if value is None:
        return _entry(record, "deleted", None, key=key)
    if problem is None:
        with suppress(ValueError, RecursionError):
            return _entry(record, "json", json.loads(value), key=key)
        with suppress(UnicodeDecodeError):
            return _entry(record, "text", value.decode(), key=key)
    return _entry(record, "bytes", value, key=key, problem=problem)


def _entry(record: TopicRecord, form: Any, data: Any, **more: Any) -> Entry:
    return Entry(
        log=record.topic,
        place=record.place,
        time=_time(record),
        form=form,
        data=data,
        headers={name: (value or b"").decode(errors="backslashreplace") for name, value in record.headers},
        **more,
    )


def _time(record: TopicRecord) -> datetime:
    # Not fromtimestamp, which goes over a double.
    return _EPOCH + timedelta(milliseconds=record.timestamp)
