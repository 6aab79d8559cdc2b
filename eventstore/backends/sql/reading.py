"""Rows into recorded events, a page at a time, so that no reader holds a transaction open.

Streams of a store, and of a transaction that a caller has open in its database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import eq, ge, le
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, func, select, tuple_, union_all

from eventstore.backends.batch import check_bounds, stream_name
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.greenlets import TURN
from eventstore.backends.sql.values import bindable, rows_in
from eventstore.erasure import PersonalData
from eventstore.fields.conversions import aware_utc
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import DELETED_HEAD, NO_VERSION, Position, StreamName, check_category, require_type
from eventstore.inspection.selection import EVERYTHING, Selection
from eventstore.personal.sealing import Origin
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import (
    NO_METADATA,
    AppendResult,
    FenceStatus,
    Metadata,
    RecordedCommand,
    RecordedEvent,
    StreamAppend,
    Streams,
)
from eventstore.topics import DELETED_TYPE


def conditions(events: Table, selection: Selection) -> list[ColumnElement[bool]]:
    """Return the conditions on the table of events; none selects every event."""
    columns = events.c
    listed = [
        (columns.stream, selection.streams),
        (columns.category, selection.categories),
        (columns.type, selection.types),
    ]
    clauses: list[ColumnElement[bool]] = [column.in_(values) for column, values in listed if values]
    compared = [
        (ge, columns.time, selection.since),
        (le, columns.time, selection.until),
        (ge, columns.version, selection.from_version),
        (le, columns.version, selection.to_version),
        (eq, columns.correlation_id, selection.correlation_id),
    ]
    clauses += [compare(column, value) for compare, column, value in compared if value is not None]
    return clauses


# A page of 1,000 events of about 120 bytes is some 300 kB on the wire, and takes about 10 ms to decode.
_PAGE: Final = 1000
_HIGHEST: Final = 2**31 - 1


def head_of(connection: Connection, events: Table, stream: str) -> int:
    """Return the version of a stream's last event, -1 without events, DELETED_HEAD for a deleted stream."""
    query = select(events.c.version, events.c.type).where(events.c.stream == stream)
    last = connection.execute(query.order_by(events.c.version.desc()).limit(1)).first()
    if last is None:
        return NO_VERSION
    return DELETED_HEAD if last.type == DELETED_TYPE else int(last.version)


class SqlStreams(Streams):
    """Streams that are read from a database."""

    def _read_from(self, database: Database, decoder: AvroDecoder, personal: PersonalData) -> None:
        self._events, self._deleted = database.tables.events, database.tables.deleted_events
        self._dialect = database.dialect
        self._connect = database.statement
        self._take_turns = database.take_turns
        self._decoder = decoder
        self._personal = personal
        self._columns = database.tables.recorded

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
        return self._versions(str(stream_name(stream)), (from_version, to_version, moment), backwards, limit)

    def _versions(
        self, stream: str, bounds: tuple[int, int | None, datetime | None], backwards: bool, limit: int | None
    ) -> Iterator[RecordedEvent]:
        version, (first, last, until) = self._events.c.version, bounds
        last = self._until(stream, until, _HIGHEST if last is None else last)
        query = self._columns.where(self._events.c.stream == stream)
        query = query.order_by(version.desc() if backwards else version)
        for size in _sizes(limit):
            page = self._page(query.where(version.between(first, last)), size)
            yield from page
            if len(page) < size:
                return
            first, last = (first, page[-1].version - 1) if backwards else (page[-1].version + 1, last)

    def _until(self, stream: str, until: datetime | None, last: int) -> int:
        if until is None:
            return last
        columns = self._events.c
        query = select(func.min(columns.version)).where(columns.stream == stream, columns.time > until)
        with self._connect() as connection:
            later: int | None = connection.execute(query).scalar()
        return last if later is None else min(last, later - 1)

    def find(self, event_id: UUID) -> RecordedEvent | None:
        """Return the event that was recorded under an id, None without one."""
        require_type(event_id, UUID, "event_id", takes="a UUID")
        return next(iter(self._page(self._columns.where(self._events.c.id == event_id), 1)), None)

    def commands_of(self, ids: Sequence[UUID]) -> dict[UUID, RecordedCommand]:
        """Return the commands that are stored with events (`keep_commands=True`), by the ids of these events.

        Raises KeysMissing if a personal argument is sealed and the store was opened without keys, and InvalidSeal.
        """
        columns = self._events.c
        query = select(columns.id, columns.command, columns.stream).where(columns.command.is_not(None))
        with self._connect() as reading:
            stored = {event_id: (text, stream) for event_id, text, stream in rows_in(reading, query, columns.id, ids)}
        return self._personal.commands(stored)

    def head(self, stream: StreamName | str) -> int | None:
        """Return the version of a stream's last event, None without events."""
        name = str(stream_name(stream))
        with self._connect() as connection:
            head = head_of(connection, self._events, name)
        return None if head <= NO_VERSION else head

    def _after(self, query: Select[Any], after: Position | None) -> Select[Any]:
        if after is None:
            return query
        return query.where(tuple_(self._events.c.order_xid, self._events.c.position) > tuple_(*after))

    def _before(self, query: Select[Any], before: Position | None) -> Select[Any]:
        if before is None:
            return query
        return query.where(tuple_(self._events.c.order_xid, self._events.c.position) < tuple_(*before))

    def _page(self, query: Select[Any], size: int) -> list[RecordedEvent]:
        with self._connect() as connection:
            rows = connection.execute(query.limit(size)).all()
        recorded = [self._recorded(row) for part in self._in_turns(rows) for row in part]
        shown = self._personal.disclose([(schema, data, Origin(e.stream, e.id.hex)) for schema, data, e in recorded])
        return [
            event if data is read else replace(event, data=data)
            for (_, read, event), data in zip(recorded, shown, strict=True)
        ]

    def _in_turns(self, rows: Sequence[Row[Any]]) -> Iterator[Sequence[Row[Any]]]:
        for first in range(0, len(rows), TURN):
            yield rows[first : first + TURN]
            self._take_turns()

    def _recorded(self, row: Row[Any]) -> tuple[RegisteredSchema, dict[str, Any], RecordedEvent]:
        """An event with its schema and values, personal ones still sealed."""
        event_id, stream, version, kind, payload, ce_time, order_xid, position, *why = tuple(row)
        schema, data = self._decoder.decode(payload)
        event = RecordedEvent(
            id=event_id,
            stream=stream,
            version=version,
            type=kind,
            schema_id=schema.id,
            schema_version=schema.version,
            data=data,
            metadata=_metadata(*why),
            time=datetime.fromisoformat(ce_time),
            position=Position(order_xid, position),
        )
        return schema, data, event


class StoredEvents(SqlStreams):
    """The events of a whole store, in its order."""

    def read_all(
        self, *, after: Position | None = None, category: str | None = None, limit: int | None = None
    ) -> Iterator[RecordedEvent]:
        """Yield events in store order behind the fence: none is skipped, and each stream is in order.

        `after` is the position of the last event read: a reader's checkpoint. Raises InvalidIdentifier for a name that
        no category can have, and InvalidArgument for a limit below zero.
        """
        selection = EVERYTHING if category is None else Selection(categories=(category,))
        return self.read_selected(selection, after=after, limit=limit)

    def read_selected(
        self,
        selection: Selection,
        *,
        after: Position | None = None,
        before: Position | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> Iterator[RecordedEvent]:
        """Yield the events of a selection in store order behind the fence, or from the newest down.

        `after` and `before` are positions that are left out. The database looks at every event for a selection without
        streams, categories and positions. Raises InvalidArgument or InvalidIdentifier.
        """
        check_bounds(limit=limit)
        selection.require_names()
        return self._selected(selection, after, before, newest_first, limit)

    def _selected(
        self, selection: Selection, after: Position | None, before: Position | None, newest: bool, limit: int | None
    ) -> Iterator[RecordedEvent]:
        columns = self._events.c
        query = self._columns.where(self._dialect.fence(columns.order_xid), *conditions(self._events, selection))
        order = (columns.order_xid, columns.position)
        query = query.order_by(*(column.desc() for column in order) if newest else order)
        for size in _sizes(limit):
            page = self._page(self._before(self._after(query, after), before), size)
            yield from page
            if len(page) < size:
                return
            after, before = (after, page[-1].position) if newest else (page[-1].position, before)

    def read_categories(self, after: Mapping[str, Position | None], *, limit: int) -> list[RecordedEvent]:
        """Return events of several categories in store order behind the fence, each category after its own position."""
        # One statement has one fence for all of them. The limit applies to each category and to the result: an index
        # returns the events of a category in order.
        check_bounds(limit=limit)
        columns = self._events.c
        visible = self._columns.where(self._dialect.fence(columns.order_xid))
        each = [
            self._after(visible.where(columns.category == check_category(category)), place)
            .order_by(columns.order_xid, columns.position)
            .limit(limit)
            for category, place in after.items()
        ]
        if len(each) == 1:
            return self._page(each[0], limit)
        union = union_all(*(select(one.subquery()) for one in each)).subquery()
        return self._page(select(union).order_by(union.c.order_xid, union.c.position), limit)

    def recorded_ids(self, ids: Sequence[UUID]) -> set[UUID]:
        """Return those of the ids under which an event was recorded, including events that were deleted since."""
        with self._connect() as reading:
            return {
                event_id
                for table in (self._events, self._deleted)
                for (event_id,) in rows_in(reading, select(table.c.id), table.c.id, ids)
            }

    def sources_of(self, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Return the CloudEvents source of each event. An imported event has that of the store that recorded it."""
        columns = self._events.c
        with self._connect() as reading:
            rows = rows_in(reading, select(columns.id, columns.ce_source), columns.id, ids)
            return {event_id: source for event_id, source in rows}

    def last_position(self, category: str, *, before: datetime | None = None) -> Position | None:
        """Return the position of a category's last event behind the fence, or of the last one before a moment.

        A moment's first event is the first by position that is not older, whatever the clocks of writers say.
        """
        columns = self._events.c
        place = tuple_(columns.order_xid, columns.position)
        query = select(columns.order_xid, columns.position).where(
            columns.category == category, self._dialect.fence(columns.order_xid), columns.payload.is_not(None)
        )
        newest = query.order_by(columns.order_xid.desc(), columns.position.desc()).limit(1)
        with self._connect() as connection:
            row = connection.execute(newest).first()
            if before is not None:
                # Asked for afterwards: what is appended meanwhile is not taken for older than the moment.
                since = query.where(columns.time >= aware_utc(before)).order_by(columns.order_xid, columns.position)
                if first := connection.execute(since.limit(1)).first():
                    row = connection.execute(newest.where(place < tuple_(*first))).first()
        return None if row is None else Position(*row)

    def fence(self) -> FenceStatus:
        """Return how many committed events are hidden (`waiting`), for how many seconds (`age`) and by which `holder`.

        Raises StoreUnavailable or StoreNotPrepared.
        """
        columns = self._events.c
        hidden = select(func.count()).where(~self._dialect.fence(columns.order_xid))
        with self._connect() as connection:
            waiting, holder = connection.execute(hidden).scalar_one(), self._dialect.fence_holder(connection)
        return FenceStatus(waiting, *holder)

    def backlog(self, after: Position | None, *, category: str) -> tuple[int, datetime | None]:
        """Return how many events of a category come after a position, and the time of the first of them."""
        columns = self._events.c
        visible = (self._dialect.fence(columns.order_xid), columns.payload.is_not(None))
        of_category = (columns.category == category, *visible)
        count = self._after(select(func.count()).where(*of_category), after)
        first = self._after(select(columns.ce_time).where(*of_category), after)
        with self._connect() as connection:
            number = connection.execute(count).scalar_one()
            oldest = connection.execute(first.order_by(columns.order_xid, columns.position).limit(1)).scalar()
        return number, None if oldest is None else datetime.fromisoformat(oldest)


class JoinedStreams(SqlStreams):
    """Streams of a store in the transaction of a connection, which its owner ends."""

    def __init__(self, append: Callable[[Sequence[StreamAppend]], list[AppendResult]], *of: Any) -> None:
        self._append = append
        self._read_from(*of)

    def append_batch(self, appends: Sequence[StreamAppend]) -> list[AppendResult]:
        """Append to many streams, as `SqlEventStore.append_batch` does with a connection."""
        return self._append(appends)

    def at(self, places: Sequence[tuple[str, int]]) -> list[RecordedEvent]:
        """Return the events of these streams and versions, as far as they are there."""
        place = tuple_(self._events.c.stream, self._events.c.version)
        return [event for part in bindable(places) for event in self._page(self._columns.where(place.in_(part)), _PAGE)]


def _sizes(limit: int | None) -> Iterator[int]:
    """The sizes of full pages, for as long as they are asked for."""
    left = limit
    while left is None or left > 0:
        size = _PAGE if left is None else min(_PAGE, left)
        yield size
        left = None if left is None else left - size


def _metadata(correlation_id: str | None, causation_id: str | None, traceparent: str | None) -> Metadata:
    if correlation_id is None and causation_id is None and traceparent is None:
        return NO_METADATA
    return Metadata(correlation_id=correlation_id, causation_id=causation_id, traceparent=traceparent)
