"""Streams a user declares over event topics: append-only facts, each with the time at which it happened.

The versions of a row that is folded from events are such facts too: what each event of its stream set, and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from eventstore.aggregates.aggregate import Aggregate
from eventstore.event_types import EventType, event_type_of
from projections.declaring.columns import ColumnType, Setter, Setters, agreed_type, placeholders
from projections.declaring.event_tables import topic_of
from projections.declaring.tables import EVENT_TIME, SETS, VALID_FROM, EventTable, OfEvents
from projections.declaring.timing.promises import Retain
from projections.errors import InvalidDefinition

RECORD_TIME = "event_time"  # the column that holds the record's ce_time


@dataclass(frozen=True, repr=False)
class EventStream(OfEvents):
    """The events of some types as rows, in the state for ever; made by ``Stream.from_events``.

    ``time`` is the column of the event time; ``fields`` gives each of the events' columns its setters. ``id_column`` is
    set where a stream may hold several such events: then the key is ``id@version``. ``version_column`` holds the
    event's version. ``source`` is whose events are meant, None for whatever the topic holds. ``retain`` is the promise
    by which rows are forgotten, None where they stay.
    """

    append_only: ClassVar[bool] = True
    has_event_time: ClassVar[bool] = True

    events: tuple[EventType, ...]
    fields: Mapping[str, tuple[Setter, ...]]
    time: str
    id_column: str | None
    version_column: str | None = field(default=None, kw_only=True)
    source: str | None = field(default=None, kw_only=True)
    retain: Retain | None = field(default=None, kw_only=True)

    @property
    def hidden(self) -> Mapping[str, ColumnType]:
        """The event time once more, in microseconds since 1970: every database compares whole numbers alike."""
        return {EVENT_TIME: ColumnType("long"), **self.sealed}

    @property
    def entries(self) -> tuple[str, ...]:
        """The key, where it is no aggregate's id."""
        return self.key if self.id_column is not None else ()

    @property
    def set_by(self) -> Setters:
        """The setters of the events' columns."""
        return self.fields

    @property
    def is_headed(self) -> bool:
        """True also where a record's time counts."""
        return super().is_headed or self.timed_by_record or self.retain is not None

    @property
    def timed_by_record(self) -> bool:
        """Whether the event time is that of the record, and not a field of the event."""
        return self.time not in self.fields

    def signature(self) -> str:
        """Adds which events are rows, and what their key and time are."""
        fields = [(c, [s.event.name for s in setters]) for c, setters in self.fields.items()]
        events = [event.name for event in self.events]
        own = f"{self.aggregate.category}|{events}|{fields}|{self.time}|{self.id_column}"
        version = "" if self.version_column is None else f"|version {self.version_column}"
        source = "" if self.source is None else f"|source {self.source}"
        late = "" if self.retain is None else f"|late {self.retain.late_micros}"
        return f"{super().signature()}|{own}{version}{placeholders(self.fields)}{source}{late}"


class Stream:
    """Declares streams: tables with a row for each event.

    Examples:
        >>> placements = Stream.from_events(Order, events=Order.Placed, key="order_id", time="placed_at")
    """

    @staticmethod
    def from_events(
        aggregate: type[Aggregate],
        *,
        events: type | Sequence[type],
        key: str,
        time: str | None = None,
        id: str | None = None,
        version: str | None = None,
        columns: Sequence[str] | None = None,
        name: str | None = None,
        topic: str | None = None,
        source: str | None = None,
        retain: Retain | None = None,
    ) -> EventStream:
        """Return the events of the given types, each as a row.

        Args:
            aggregate: The aggregate.
            events: Its event classes. Their fields are the columns, null if a type lacks one.
            key: The column of the aggregate's id, if an aggregate has at most one such event. With ``id``, the column
                of ``id@version``.
            time: The timestamp field of the event time. By default the column ``event_time`` holds when the event was
                recorded.
            id: The column of the aggregate's id, if an aggregate may have several such events.
            version: A column of the event's version, a number. It orders one aggregate's events of the same time.
            columns: The fields that are columns, by default all.
            name: The stream's name, by default the view's parameter.
            topic: The topic, by default that of ``source``.
            source: The service whose events are read, as in `Table.from_events`.
            retain: How late an event may be. Rows that no later event can concern are then forgotten.

        Raises:
            InvalidDefinition: The stream cannot work, or an event lacks a field.
            InvalidIdentifier: The source gives no topic.

        Examples:
            >>> payments = Stream.from_events(Payment, events=Payment.Received, key="payment_id", time="paid_at")
        """
        types = _own_types(aggregate, [events] if isinstance(events, type) else events)
        identity = {c: ColumnType("string") for c in (key, id) if c is not None}
        identity |= {version: ColumnType("long")} if version else {}
        chosen = None if columns is None else [*columns, *([time] if time else [])]
        fields = _fields(types, chosen, place=aggregate.__name__)
        moment = _event_time(time, types, fields)
        typed = {c: agreed_type(c, setters, place=aggregate.__name__) for c, setters in fields.items()}
        own = [key, *(c for c in (id, version) if c), *typed, *([] if time else [RECORD_TIME])]
        _require_distinct(own, aggregate.__name__)
        every = {**identity, **typed, moment: typed.get(moment, ColumnType("timestamp"))}
        stream = EventStream(
            topic or topic_of(aggregate, source), (key,), every, name=name, source=source, retain=retain,
            aggregate=aggregate, events=types, fields=fields, time=moment, id_column=id, version_column=version,
        )  # fmt: skip
        _require_forgettable(stream, aggregate.__name__)
        return stream


def _require_forgettable(stream: EventStream, place: str) -> None:
    """Refuse a promise where something would still reach rows that are forgotten."""
    if stream.retain is None:
        return
    if stream.personal:
        raise InvalidDefinition(
            f"a stream with retain= has personal column {stream.personal[0]!r}, and erasures must reach all results",
            remedy="choose the other columns with columns=[…], or leave out retain=",
            place=place,
        )
    if stream.id_column is None:
        raise InvalidDefinition(
            f"a stream with retain= is keyed by {stream.key[0]!r} alone, and a second event of one that is forgotten"
            " would not be noticed",
            remedy="give every event a row: Stream.from_events(…, key='…', id='…') keys them by id@version",
            place=place,
        )


def _own_types(aggregate: type[Aggregate], events: Sequence[type]) -> tuple[EventType, ...]:
    types = tuple(event_type_of(event) for event in events)
    foreign = [event.name for event in types if event.name not in aggregate.event_types]
    if types and not foreign:
        return types
    raise InvalidDefinition(
        f"{foreign[0]} is no event of {aggregate.__name__}" if foreign else "a stream of no events",
        remedy=f"its events are: {', '.join(sorted(aggregate.event_types))}",
        place=aggregate.__name__,
    )


def _fields(types: Sequence[EventType], chosen: Sequence[str] | None, *, place: str) -> dict[str, tuple[Setter, ...]]:
    held = {event.name: [f["name"] for f in event.schema["fields"]] for event in types}
    known = list(dict.fromkeys(name for names in held.values() for name in names))
    for name in chosen or ():
        if name not in known:
            raise InvalidDefinition(
                f"no event of the stream has a field {name!r}",
                remedy=f"their fields are: {', '.join(known) or 'none'}",
                place=place,
                code="unknown-column",
            )
    selected = known if chosen is None else list(dict.fromkeys(chosen))
    return {c: tuple(Setter(event, c) for event in types if c in held[event.name]) for c in selected}


def _event_time(time: str | None, types: Sequence[EventType], fields: Mapping[str, Sequence[Setter]]) -> str:
    """The column of the event time; a field must be a timestamp, and every event must have it."""
    if time is None:
        return RECORD_TIME
    setters = fields.get(time, ())
    lacking = [event.name for event in types if event.name not in {s.event.name for s in setters}]
    if lacking:
        raise InvalidDefinition(
            f"event {lacking[0]} has no field {time!r} to be its time",
            remedy="name a datetime field that every event of the stream has, or leave time out: when it was recorded",
            code="unknown-column",
        )
    kind = setters[0].column_type()
    if setters[0].personal:
        raise InvalidDefinition(
            f"field {time!r} of {types[0].name} is personal, and an event keeps its time after an erasure",
            remedy="name a field that is not personal, or leave time out: the time at which the event was recorded",
        )
    if kind.kind != "timestamp":
        raise InvalidDefinition(
            f"field {time!r} of {types[0].name} is {kind.ddl}, and an event time is a timestamp",
            remedy="declare the field as datetime, or leave time out: the time at which the event was recorded",
        )
    return time


def _require_distinct(columns: Sequence[str], place: str) -> None:
    if repeated := [c for c in columns if columns.count(c) > 1]:
        raise InvalidDefinition(
            f"the stream would have two columns {repeated[0]!r}",
            remedy="name key, id and version otherwise than the events' fields, or choose the fields with columns=[…]",
            place=place,
        )


@dataclass(frozen=True, repr=False)
class EventVersions(OfEvents):
    """Every event of the streams that a table is ``folded`` from, each with the columns that it sets.

    A state row is an event: ``key`` is the stream's, and the event's version (``_pos``) distinguishes them. Events that
    set no column are rows too. Otherwise a missing event would look like one of them.
    """

    append_only: ClassVar[bool] = True  # until the stream is deleted
    is_dense: ClassVar[bool] = True

    folded: EventTable

    @staticmethod
    def of(table: EventTable) -> EventVersions:
        """The versions of a table with declared columns."""
        return EventVersions(table.topic, table.key, table.columns, aggregate=table.aggregate, folded=table)

    @property
    def is_headed(self) -> bool:
        """True: a version is valid from the time of its record."""
        return True

    @property
    def set_by(self) -> Setters:
        """What sets each column."""
        return self.folded.set_by

    @property
    def source(self) -> str | None:
        """Whose events are meant, None for whatever the topic holds."""
        return self.folded.source

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key and the event's version."""
        return (*self.key, "_pos")

    @property
    def hidden(self) -> Mapping[str, ColumnType]:
        """When the event was recorded, in microseconds since 1970, and which columns it sets."""
        return {VALID_FROM: ColumnType("long"), SETS: ColumnType("string"), **self.sealed}

    @property
    def sliced(self) -> Mapping[str, ColumnType]:
        """All of it, events of deleted streams too: one of them says that the stream is deleted."""
        return {**self.stored, "_pos": ColumnType("long"), "_deleted": ColumnType("boolean")}

    def signature(self) -> str:
        """That of the table, whose versions these are."""
        return f"{super().signature()}|{self.folded.signature()}"
