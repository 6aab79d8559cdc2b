"""What a file's events and a store's events say of each other: streams that went another way, or have gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Text, column, select, tuple_, values

from eventstore.backends.sql.bound_values import bindable
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.transfer.contents import EventRow
from eventstore.errors import ImportConflict
from eventstore.topics import DELETED_TYPE

Ends = dict[str, int]
"""The last version of each stream in the part of a file that was read."""


class Conflicts:
    """Compares batches of a file with a store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._events = database.tables.events

    def new_of(self, batch: Sequence[EventRow]) -> list[EventRow]:
        """Return the events that the store does not hold; ImportConflict where it holds one at another place."""
        known = self._present(batch)
        for row in batch:
            if known.get(row.id, (str(row.stream), row.version)) != (str(row.stream), row.version):
                raise conflict(f"event {row.id} stands elsewhere: {known[row.id]}", row)
        return [row for row in batch if row.id not in known]

    def check_before(self, batch: Sequence[EventRow], ends: Ends) -> None:
        """Compare a batch with the store and with the file before it, and move ``ends``; ImportConflict."""
        new = self.new_of(batch)
        if len({row.id for row in new}) < len(new):
            raise conflict("an event of this batch has an id that another event has", new[0])
        with self._database.statement() as connection:
            self.check(connection, new, ends)
            if places := {(str(row.stream), row.version): row for row in new}:
                self._require_free(places, self._stored(connection, list(places)))
        for row in batch:
            ends[str(row.stream)] = max(row.version, ends.get(str(row.stream), row.version))

    def check(self, connection: Connection, new: Sequence[EventRow], ends: Mapping[str, int] | None = None) -> None:
        """Refuse streams that were deleted, begin in the middle or have gaps; ImportConflict."""
        self._check_deleted(connection, new)
        self._check_predecessors(connection, [row for row in new if row.payload is not None], ends or {})

    def taken(self, batch: Sequence[EventRow]) -> ImportConflict:
        """Build the error for a batch that met a unique constraint."""
        places = {(str(row.stream), row.version): row for row in batch}
        with self._database.statement() as connection:
            taken = self._stored(connection, list(places))
        try:
            self._require_free(places, taken)
        except ImportConflict as error:
            return error
        return conflict("an event of this batch has an id that another event has", batch[0])

    def _require_free(self, places: Mapping[tuple[str, int], EventRow], taken: Sequence[tuple[str, int]]) -> None:
        if taken:
            stream, version = min(taken)
            raise conflict(f"stream {stream!r} has another event at version {version}", places[stream, version])

    def _present(self, batch: Sequence[EventRow]) -> dict[UUID, tuple[str, int]]:
        columns = self._events.c
        places: dict[UUID, tuple[str, int]] = {}
        with self._database.statement() as connection:
            for ids in bindable([row.id for row in batch]):
                query = select(columns.id, columns.stream, columns.version).where(columns.id.in_(ids))
                places.update((row.id, (row.stream, row.version)) for row in connection.execute(query))
        return places

    def _check_deleted(self, connection: Connection, batch: Sequence[EventRow]) -> None:
        """Let no event come to a deleted stream, and no deletion to a stream with events."""
        columns = self._events.c
        by_stream = {str(row.stream): row for row in batch}
        for names in bindable(list(by_stream)):
            imported = values(column("stream", Text), name="imported").data([(name,) for name in names]).cte("imported")
            last = select(columns.type).where(columns.stream == imported.c.stream).order_by(columns.version.desc())
            for stream, kind in connection.execute(select(imported.c.stream, last.limit(1).scalar_subquery())):
                row = by_stream[stream]
                if kind == DELETED_TYPE:
                    raise conflict(f"stream {stream!r} was deleted here", row)
                if kind is not None and row.payload is None:
                    raise conflict(f"stream {stream!r} was deleted there, and has events here", row)

    def _check_predecessors(self, connection: Connection, batch: Sequence[EventRow], ends: Mapping[str, int]) -> None:
        """Let no stream begin in its middle, or go on after a gap."""
        places: dict[tuple[str, int], EventRow] = {}
        for row in batch:
            place = (str(row.stream), row.version)
            if places.setdefault(place, row) is not row or row.version <= ends.get(place[0], -1):
                raise conflict(f"the file has two events {row.stream}@{row.version}", row)
        before = {(s, v - 1): row for (s, v), row in places.items() if v > 0 and (s, v - 1) not in places}
        before = {(s, v): row for (s, v), row in before.items() if ends.get(s) != v}
        for stored in self._stored(connection, list(before)):
            del before[stored]
        for (stream, version), row in before.items():
            raise conflict(f"version {version} of stream {stream!r} is neither here nor in the file before", row)

    def _stored(self, connection: Connection, places: list[tuple[str, int]]) -> list[tuple[str, int]]:
        columns = self._events.c
        place: ColumnElement[Any] = tuple_(columns.stream, columns.version)
        stored: list[tuple[str, int]] = []
        for part in bindable(places):
            query = select(columns.stream, columns.version).where(place.in_(part))
            stored += [(stream, version) for stream, version in connection.execute(query)]
        return stored


def conflict(why: str, row: EventRow) -> ImportConflict:
    """Build the error for an event of a file that does not fit here."""
    return ImportConflict(
        f"{why} (line or row {row.number} of the file)",
        remedy="import into an empty store, or into one that holds a beginning of the same streams",
        place=f"{row.stream}@{row.version}",
    )
