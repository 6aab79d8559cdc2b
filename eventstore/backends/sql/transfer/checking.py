"""Checks of a file before it is imported: its values stay readable, and no event stands otherwise in the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Text, column, select, tuple_
from sqlalchemy import values as rows_of

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.transfer.contents import EventRow, Head, damaged, not_an_event
from eventstore.backends.sql.values import bindable, rows_in
from eventstore.erasure import keys_in, keys_of_command, subjects_in
from eventstore.errors import ImportConflict, InvalidIdentifier, KeysMissing, SchemaError
from eventstore.fields.serialization import AvroDecoder, require_avro
from eventstore.schema_registry import RegisteredSchema, fingerprint
from eventstore.topics import DELETED_TYPE

T = TypeVar("T")

Known = Callable[[Collection[UUID]], Mapping[UUID, str | None]]
"""Finds those of some ids that are keys of a store, with their subjects where it knows them."""


class FileEvents:
    """Decodes the events of a file by the schemas of its head."""

    def __init__(self, head: Head, path: Path) -> None:
        self._path = path
        self._categories = {category.name for category in head.categories}
        self._decoder = AvroDecoder(head.schemas.__getitem__)

    def subjects(self, rows: Iterable[EventRow]) -> set[tuple[str, str]]:
        """Return the subjects of events (first) and their streams (second); InvalidExport for what is no event."""
        subjects: set[tuple[str, str]] = set()
        for row in rows:
            for schema, values in self._decoded(row):
                subjects |= {(subject, str(row.stream)) for subject in self._read(row, subjects_in, schema, values)}
            subjects |= {(subject, str(row.stream)) for _, subject in _of_command(row)}
        return subjects

    def check(self, rows: Iterable[EventRow], known: Known, coming: Mapping[UUID, str]) -> None:
        """Decode events, and refuse one whose key is neither here nor coming, or belongs to another subject.

        ``coming`` has the subjects of the keys that come along. InvalidExport, KeysMissing.
        """
        keys = [
            (row, *key) for row in rows for decoded in self._decoded(row) for key in self._read(row, keys_in, *decoded)
        ]
        keys += [(row, *key) for row in rows for key in _of_command(row)]
        elsewhere = {key_id for _, key_id, _ in keys if key_id not in coming}
        subjects = {**known(elsewhere), **coming} if elsewhere else coming
        for row, key_id, subject in keys:
            if key_id not in subjects:
                raise KeysMissing(
                    "events of the file are sealed under keys that this key store does not know, as "
                    f"{row.stream}@{row.version}",
                    remedy="export and import with keys=True (--with-keys), or open the store with the key store of "
                    "the service that wrote them: SqlEventStore(url, keys=…), --key-store module:name",
                    place=self.place(row),
                )
            if subjects[key_id] not in (None, subject):
                raise damaged(f"it is about {subject!r}, and sealed under the key of another subject", self.place(row))

    def place(self, row: EventRow) -> str:
        """Return where in the file an event stands."""
        return f"{self._path}, line or row {row.number}"

    def _read(self, row: EventRow, read: Callable[..., set[T]], schema: RegisteredSchema, values: Any) -> set[T]:
        try:
            return read(schema, values, row.stream.id)
        except (SchemaError, InvalidIdentifier) as error:
            raise not_an_event(error, self.place(row)) from error

    def _decoded(self, row: EventRow) -> list[tuple[RegisteredSchema, dict[str, Any]]]:
        """The event, nothing for the end of a deleted stream."""
        place = self.place(row)
        if row.stream.category not in self._categories:
            raise damaged(f"category {row.stream.category!r} is not in the file's head", place)
        if row.payload is None:
            return []
        try:
            schema, values = self._decoder.decode(row.payload)
        except KeyError as error:
            raise damaged(f"schema {error} is not in the file's head", place) from error
        except SchemaError as error:
            raise not_an_event(error, place) from error
        if schema.name != row.type:
            raise damaged(f"its type is {row.type}, its schema is of {schema.name}", place)
        if (odd := next((name for name, value in values.items() if _has_nul(value)), None)) is not None:
            raise damaged(f"a text in {row.type}.{odd} has the character NUL, which no view can store", place)
        return [(schema, values)]


def _of_command(row: EventRow) -> set[tuple[UUID, str]]:
    return set() if row.command is None else keys_of_command(row.command)


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(map(_has_nul, (*value, *value.values())))
        case list() | tuple():
            return any(map(_has_nul, value))
    return False


def check_head(head: Head, path: Path) -> None:
    """Refuse schemas by which nothing could be read; InvalidExport."""
    for schema in head.schemas.values():
        if schema.registry is None and fingerprint(schema.schema) != schema.id:
            raise damaged(f"schema {schema.id} of {schema.name} is not what its id says", str(path))
        try:
            require_avro(schema)
        except SchemaError as error:
            raise damaged(error.message, str(path)) from error


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
        query = select(columns.id, columns.stream, columns.version)
        with self._database.statement() as connection:
            rows = rows_in(connection, query, columns.id, (row.id for row in batch))
            return {row.id: (row.stream, row.version) for row in rows}

    def _check_deleted(self, connection: Connection, batch: Sequence[EventRow]) -> None:
        """Let no event come to a deleted stream, and no deletion to a stream with events."""
        columns = self._events.c
        by_stream = {str(row.stream): row for row in batch}
        for names in bindable(list(by_stream)):
            imported = (
                rows_of(column("stream", Text), name="imported").data([(name,) for name in names]).cte("imported")
            )
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
        rows = rows_in(connection, select(columns.stream, columns.version), place, places)
        return [(stream, version) for stream, version in rows]


def conflict(why: str, row: EventRow) -> ImportConflict:
    """Build the error for an event of a file that does not fit here."""
    return ImportConflict(
        f"{why} (line or row {row.number} of the file)",
        remedy="import into an empty store, or into one that holds a beginning of the same streams",
        place=f"{row.stream}@{row.version}",
    )
