"""A file's events into a store: their ids, versions and times stay, their places in the store are new."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Text, column, select, tuple_, values
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import rfc3339
from eventstore.backends.sql.catalogue import SqlCatalogue
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.dialect import bindable
from eventstore.backends.sql.keys import SqlKeys
from eventstore.backends.sql.transfer.checking import FileEvents, require_keys
from eventstore.backends.sql.transfer.contents import (
    EventRow,
    ExportReader,
    Format,
    Progress,
    damaged,
    format_of,
)
from eventstore.backends.sql.transfer.jsonl import JsonLinesReader
from eventstore.backends.sql.transfer.keys import KeyTransfer, WrappedKey
from eventstore.backends.sql.transfer.marks import MarkTransfer
from eventstore.erasure import KeyStore, MasterKeys
from eventstore.errors import FactfoldError, ImportConflict, InvalidExport, KeysMissing
from eventstore.schema_registry import fingerprint
from eventstore.serialization import schema_id_of
from eventstore.store import Category
from eventstore.topics import DELETED_TYPE, message_key, partition_of


@dataclass(frozen=True, slots=True)
class ImportReport:
    """How many events were stored, how many were there before, how many keys are new, and how many archived streams."""

    imported: int
    present: int
    keys: int = 0
    archived: int = 0


class Importer:
    """Reads a file batch by batch, each in a transaction of its own; one that is repeated finds what is there."""

    def __init__(self, database: Database, catalogue: SqlCatalogue, subjects: SqlKeys, keys: KeyStore | None) -> None:
        self._database = database
        self._events = database.tables.events
        self._catalogue = catalogue
        self._subjects = subjects
        self._keys = keys

    def load(
        self, path: Path, wanted: Format | None, on_progress: Progress, *, keys: MasterKeys | None
    ) -> ImportReport:
        """Import a file, with its data keys where master keys are given that open them.

        InvalidExport, ImportConflict, SchemaConflict; KeysMissing before anything is stored.
        """
        form = format_of(path, wanted)
        reader = _reader(path, form)
        coming = [] if keys is None else _keys_in(reader, path)
        if FileEvents(reader.head, path).are_personal:
            require_keys(_reader(path, form), path, self._known, [key.id for key in coming])
        taken = 0 if keys is None else KeyTransfer(self._database).take(coming, keys)
        step, marks = _Batches(self, reader, path), MarkTransfer(self._database)
        imported = present = archived = 0
        for batch in reader.batches(on_progress):
            new = step.store(batch)
            imported, present = imported + len(new), present + len(batch) - len(new)
            archived += marks.take(batch, new)
        return ImportReport(imported, present, taken, archived)

    def note(self, pairs: set[tuple[str, str]]) -> None:
        """Remember which subjects stand in which streams: an erasure asks for it."""
        self._subjects.note(pairs)

    def _known(self, ids: Collection[UUID]) -> Collection[UUID]:
        return self._subjects.known(ids) if self._keys is None else self._keys.keys(ids)

    def categories(self, path: Path, reader: ExportReader) -> dict[str, Category]:
        """Make the categories and schemas of the file; a category that is there keeps its topic and partitions."""
        for schema in reader.head.schemas.values():
            if schema.registry is None and fingerprint(schema.schema) != schema.id:
                raise damaged(f"schema {schema.id} of {schema.name} is not what its id says", str(path))
        try:
            self._catalogue.register(reader.head.schemas.values())
            named = {one.name: self._catalogue.adopt(one) for one in reader.head.categories}
        except (TypeError, KeyError) as error:
            raise damaged(f"its head cannot be used: {error}", str(path)) from error
        return named

    def insert(self, rows: list[dict[str, Any]], batch: Sequence[EventRow]) -> None:
        """Store a batch, or nothing of it; ImportConflict."""
        try:
            with self._database.writing() as connection:
                self._check_deleted(connection, batch)
                self._check_predecessors(connection, [row for row in batch if row.payload is not None])
                self._database.dialect.insert_rows(connection, rows)
        except DBAPIError as error:
            if self._database.dialect.violated(error) is None:
                raise
            raise self._taken(batch) from error

    def present(self, batch: Sequence[EventRow]) -> dict[UUID, tuple[str, int]]:
        """Return the places of those events of a batch that the store holds."""
        columns = self._events.c
        found: dict[UUID, tuple[str, int]] = {}
        with self._database.statement() as connection:
            for ids in bindable([row.id for row in batch]):
                query = select(columns.id, columns.stream, columns.version).where(columns.id.in_(ids))
                found.update((row.id, (row.stream, row.version)) for row in connection.execute(query))
        return found

    def _check_deleted(self, connection: Connection, batch: Sequence[EventRow]) -> None:
        """Let no event come to a deleted stream, and no deletion to a stream with events."""
        columns = self._events.c
        by_stream = {str(row.stream): row for row in batch}
        for names in bindable(list(by_stream)):
            wanted = values(column("stream", Text), name="wanted").data([(name,) for name in names]).cte("wanted")
            last = select(columns.type).where(columns.stream == wanted.c.stream).order_by(columns.version.desc())
            for stream, kind in connection.execute(select(wanted.c.stream, last.limit(1).scalar_subquery())):
                row = by_stream[stream]
                if kind == DELETED_TYPE:
                    raise _conflict(f"stream {stream!r} was deleted here", row)
                if kind is not None and row.payload is None:
                    raise _conflict(f"stream {stream!r} was deleted there, and has events here", row)

    def _check_predecessors(self, connection: Connection, batch: Sequence[EventRow]) -> None:
        """Let no stream begin in its middle, or go on after a gap."""
        places: dict[tuple[str, int], EventRow] = {}
        for row in batch:
            if places.setdefault((str(row.stream), row.version), row) is not row:
                raise _conflict(f"the file has two events {row.stream}@{row.version}", row)
        before = {(s, v - 1): row for (s, v), row in places.items() if v > 0 and (s, v - 1) not in places}
        for stored in self._stored(connection, list(before)):
            del before[stored]
        for (stream, version), row in before.items():
            raise _conflict(f"version {version} of stream {stream!r} is neither here nor in the file before", row)

    def _stored(self, connection: Connection, places: list[tuple[str, int]]) -> list[tuple[str, int]]:
        columns = self._events.c
        place: ColumnElement[Any] = tuple_(columns.stream, columns.version)
        found: list[tuple[str, int]] = []
        for part in bindable(places):
            query = select(columns.stream, columns.version).where(place.in_(part))
            found += [(stream, version) for stream, version in connection.execute(query)]
        return found

    def _taken(self, batch: Sequence[EventRow]) -> FactfoldError:
        places = {(str(row.stream), row.version): row for row in batch}
        with self._database.statement() as connection:
            taken = self._stored(connection, list(places))
        if not taken:
            return _conflict("an event of this batch has an id that another event has", batch[0])
        stream, version = min(taken)
        return _conflict(f"stream {stream!r} has another event at version {version}", places[stream, version])


class _Batches:
    """What a file's batches share: its decoder and its categories."""

    def __init__(self, importer: Importer, reader: ExportReader, path: Path) -> None:
        self._importer = importer
        self._events = FileEvents(reader.head, path)
        self._categories = importer.categories(path, reader)

    def store(self, batch: list[EventRow]) -> list[EventRow]:
        """Store those events that are not there yet, and return them."""
        self._importer.note(self._events.subjects(batch))
        known = self._importer.present(batch)
        for row in batch:
            if known.get(row.id, (str(row.stream), row.version)) != (str(row.stream), row.version):
                raise _conflict(f"event {row.id} stands elsewhere: {known[row.id]}", row)
        new = [row for row in batch if row.id not in known]
        if new:
            self._importer.insert([self._values(row) for row in new], new)
        return new

    def _values(self, row: EventRow) -> dict[str, Any]:
        stream = str(row.stream)
        category = self._categories[row.stream.category]
        return {
            "id": row.id,
            "stream": stream,
            "version": row.version,
            "category": category.name,
            "type": row.type,
            "schema_id": 0 if row.payload is None else schema_id_of(row.payload),
            "payload": row.payload,
            "message_key": message_key(stream, row.version),
            "partition": partition_of(stream, category.partitions),
            "topic": category.topic,
            "ce_source": row.source,
            "time": row.time,
            "ce_time": rfc3339(row.time),
            "correlation_id": row.metadata.correlation_id,
            "causation_id": row.metadata.causation_id,
            "traceparent": row.metadata.traceparent,
        }


def _keys_in(reader: ExportReader, path: Path) -> Sequence[WrappedKey]:
    if reader.head.keys is not None:
        return reader.head.keys
    raise KeysMissing(
        "the file was exported without keys",
        remedy="export it with them: export_file(path, keys=True), factfold store export --with-keys",
        place=str(path),
    )


def _reader(path: Path, wanted: Format) -> ExportReader:
    if not path.is_file():
        raise InvalidExport("there is no such file", remedy="check the path", place=str(path))
    if wanted == "jsonl":
        return JsonLinesReader(path)
    from eventstore.backends.sql.transfer.parquet import ParquetReader

    return ParquetReader(path)


def _conflict(why: str, row: EventRow) -> ImportConflict:
    return ImportConflict(
        f"{why} (line or row {row.number} of the file)",
        remedy="import into an empty store, or into one that holds a beginning of the same streams",
        place=f"{row.stream}@{row.version}",
    )
