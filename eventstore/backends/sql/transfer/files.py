"""A store's events into a file, in store order.

Marks of archived streams in an export: each goes with the last event of its stream.

A mark thus says at which version it was made, and is made here only if the stream ends with the same event. Events
that an import adds to a stream remove a mark that was made before them.

A file's events into a store: their ids, versions and times stay, their places in the store are new.

The whole file is checked before anything of it is applied: its events, its keys, its categories, and all of them
against the store.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import rfc3339
from eventstore.backends.sql.catalogue import SqlCatalogue
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.keys import SqlKeys
from eventstore.backends.sql.transfer.checking import Conflicts, Ends, FileEvents, check_head
from eventstore.backends.sql.transfer.contents import (
    BATCH,
    EventRow,
    Format,
    Head,
    JsonLinesReader,
    JsonLinesWriter,
    Progress,
    format_of,
)
from eventstore.backends.sql.transfer.keys import KeyTransfer, WrappedKey
from eventstore.backends.sql.values import bindable, in_utc
from eventstore.backends.sql.ways import upsert
from eventstore.erasure import KeyStore, MasterKeys
from eventstore.errors import ImportConflict, InvalidExport, KeysMissing
from eventstore.fields.serialization import AvroDecoder, schema_id_of
from eventstore.identifiers import Position, check_category
from eventstore.schema_registry import RegisteredSchema, check_same
from eventstore.store import Category
from eventstore.topics import message_key, partition_of

if TYPE_CHECKING:
    from eventstore.backends.sql.transfer.parquet import ParquetWriter


Marks = dict[tuple[str, int], datetime]


def archived_at(events: sa.Table, archived: sa.Table) -> sa.ColumnElement[datetime]:
    """Since when a stream is archived, in the row of its last event, else null; `archived` is joined by its stream."""
    is_last = sa.and_(archived.c.time.is_not(None), ~_later(events))
    return sa.case((is_last, archived.c.time)).label("archived")


class MarkTransfer:
    """Makes the marks of a file's streams in the store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._events = database.tables.events
        self._archived, self._snapshots = database.tables.archived_streams, database.tables.snapshots

    def take(self, batch: Sequence[EventRow], new: Sequence[EventRow]) -> int:
        """Archive the streams that a batch ends; `new` are its events that were not here. Returns how many are new."""
        marks = {(str(row.stream), row.version): row.archived for row in batch if row.archived is not None}
        if not marks and not new:
            return 0
        with self._database.writing() as connection:
            self._take_out(connection, sorted({str(row.stream) for row in new}))
            return sum(self._make(connection, marks, places) for places in bindable(list(marks)))

    def _take_out(self, connection: sa.Connection, streams: Sequence[str]) -> None:
        for part in bindable(streams):
            connection.execute(sa.delete(self._archived).where(self._archived.c.stream.in_(part)))

    def _make(self, connection: sa.Connection, marks: Marks, places: Sequence[tuple[str, int]]) -> int:
        columns = self._events.c
        query = sa.select(columns.stream, columns.version).where(
            sa.tuple_(columns.stream, columns.version).in_(places), ~_later(self._events)
        )
        # A deletion waits until the mark is there, and takes it away.
        ending = connection.execute(query.with_for_update(read=True, key_share=True)).all()
        if not ending:
            return 0
        rows = [{"stream": stream, "time": marks[stream, version]} for stream, version in ending]
        insert = upsert(connection, self._archived).values(rows).on_conflict_do_nothing()
        made = connection.execute(insert, execution_options={"preserve_rowcount": True})
        connection.execute(
            sa.delete(self._snapshots).where(self._snapshots.c.stream.in_([row["stream"] for row in rows]))
        )
        return made.rowcount


def _later(events: sa.Table) -> sa.ColumnElement[bool]:
    later = events.alias("next")
    return sa.exists().where(later.c.stream == events.c.stream, later.c.version == events.c.version + 1)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """How much was written."""

    events: int
    categories: int
    schemas: int
    keys: int = 0


class Exporter:
    """Writes what is behind the fence when it begins; the file appears when it is whole."""

    def __init__(self, database: Database, catalogue: SqlCatalogue) -> None:
        self._events, self._archived = database.tables.events, database.tables.archived_streams
        self._dialect = database.dialect
        self._connect = database.statement
        self._catalogue = catalogue
        self._keys = KeyTransfer(database)
        self._decoder = AvroDecoder(catalogue.schema)

    def export(
        self, path: Path, category: str | None, requested: Format | None, on_progress: Progress, *, keys: bool
    ) -> ExportReport:
        """Write events, all or a category's, with what it takes to read them; personal fields only with ``keys``."""
        last, total = self._extent(category)
        head = self._head(category, keys)
        part = _private(path.with_name(f"{path.name}.part"))
        try:
            writer = _writer(part, head, format_of(path, requested))
            try:
                done = 0
                for page in self._pages(category, last):
                    writer.write([self._values(row) for row in page])
                    done += len(page)
                    on_progress(done, total)
            finally:
                writer.close()
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        return ExportReport(done, len(head.categories), len(head.schemas), len(head.keys or ()))

    def _extent(self, category: str | None) -> tuple[Position | None, int]:
        columns = self._events.c
        query = self._of(sa.select(columns.order_xid, columns.position), category)
        query = query.order_by(columns.order_xid.desc(), columns.position.desc()).limit(1)
        with self._connect() as connection:
            row = connection.execute(query).first()
            total = connection.execute(self._of(sa.select(sa.func.count()), category)).scalar_one()
        return None if row is None else Position(*row), total

    def _head(self, category: str | None, keys: bool) -> Head:
        """The head of the file. A key is stored before the event that it seals: none of the extent's is missing."""
        return Head(
            [one for one in self._catalogue.all_categories() if category in (None, one.name)],
            {schema.id: schema for schema in self._schemas(category)},
            self._keys.rows(category) if keys else None,
        )

    def _schemas(self, category: str | None) -> list[RegisteredSchema]:
        schemas = self._catalogue.all_schemas()
        if category is None:
            return schemas
        used = self._of(sa.select(self._events.c.schema_id).distinct(), category)
        with self._connect() as connection:
            ids = set(connection.execute(used).scalars())
        return [schema for schema in schemas if schema.id in ids]

    def _pages(self, category: str | None, last: Position | None) -> Iterator[Sequence[sa.Row[Any]]]:
        columns = self._events.c
        place = sa.tuple_(columns.order_xid, columns.position)
        names = ("id", "stream", "version", "type", "ce_time", "ce_source", "payload")
        why = ("correlation_id", "causation_id", "traceparent", "command", "order_xid", "position")
        archived = archived_at(self._events, self._archived)
        marked = self._events.outerjoin(self._archived, self._archived.c.stream == columns.stream)
        query = self._of(sa.select(*(columns[n] for n in (*names, *why)), archived).select_from(marked), category)
        query = query.order_by(columns.order_xid, columns.position).limit(BATCH)
        page: Sequence[sa.Row[Any]] = []
        while last is not None:
            bounded = query.where(place <= sa.tuple_(*last))
            if page:
                bounded = bounded.where(place > sa.tuple_(page[-1].order_xid, page[-1].position))
            with self._connect() as connection:
                page = connection.execute(bounded).all()
            if not page:
                return
            yield page

    def _of(self, query: sa.Select[Any], category: str | None) -> sa.Select[Any]:
        columns = self._events.c
        # Of a deleted stream, only the row behind its last event goes along: it says that there was one.
        exported = sa.or_(columns.payload.is_not(None), ~_later(self._events))
        query = query.where(self._dialect.fence(columns.order_xid), exported)
        return query if category is None else query.where(columns.category == check_category(category))

    def _values(self, row: sa.Row[Any]) -> Mapping[str, Any]:
        """What is written of a row; the rest of its columns follows from these, or is the store's own."""
        data = None if row.payload is None else self._decoder.decode(row.payload)[1]
        return {
            "id": row.id,
            "stream": row.stream,
            "version": row.version,
            "type": row.type,
            "time": datetime.fromisoformat(row.ce_time),
            "source": row.ce_source,
            "correlation_id": row.correlation_id,
            "causation_id": row.causation_id,
            "traceparent": row.traceparent,
            "command": row.command,
            "data": data,
            "payload": row.payload,
            "archived": None if row.archived is None else in_utc(row.archived),
        }


def _private(path: Path) -> Path:
    """Make an empty file that its owner alone may read: it will hold events, and keys where they are asked for."""
    path.unlink(missing_ok=True)  # of an export that was killed
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def _writer(path: Path, head: Head, form: Format) -> JsonLinesWriter | ParquetWriter:
    if form == "jsonl":
        return JsonLinesWriter(path, head)
    from eventstore.backends.sql.transfer.parquet import ParquetWriter  # needs the extra parquet

    return ParquetWriter(path, head)


if TYPE_CHECKING:
    from eventstore.backends.sql.transfer.parquet import ParquetReader

    Reader = JsonLinesReader | ParquetReader


@dataclass(frozen=True, slots=True)
class ImportReport:
    """How many events were stored, how many were there before, how many keys are new, and how many archived streams."""

    imported: int
    present: int
    keys: int = 0
    archived: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """What an import takes of a file in addition to its events: keys that these open, erasures, topics."""

    keys: MasterKeys | None
    erasures: bool
    topics: bool


class Importer:
    """Stores a file batch by batch, each in a transaction of its own. A repeated batch skips existing events."""

    def __init__(self, database: Database, catalogue: SqlCatalogue, subjects: SqlKeys, keys: KeyStore | None) -> None:
        self._database = database
        self._catalogue = catalogue
        self._subjects = subjects
        self._keys = keys
        self._conflicts = Conflicts(database)
        self._transfer = KeyTransfer(database)

    def load(self, path: Path, requested: Format | None, on_progress: Progress, *, taken: Taken) -> ImportReport:
        """Import a file, with its data keys where master keys are given that open them.

        InvalidExport, ImportConflict, SchemaError, KeysMissing, all before anything is stored, unless the store
        or the file changes meanwhile.
        """
        form = format_of(path, requested)
        coming = self._check(_reader(path, form), path, taken)
        reader = _reader(path, form)
        added = 0 if taken.keys is None else self._transfer.take(coming, taken.keys, erasures=taken.erasures)
        events, marks, categories = FileEvents(reader.head, path), MarkTransfer(self._database), self._made(reader.head)
        imported = present = archived = 0
        for batch in reader.batches(on_progress):
            self._subjects.note(events.subjects(batch))
            new = self._conflicts.new_of(batch)
            if new:
                self._insert([_values(row, categories[row.stream.category]) for row in new], new)
            imported, present = imported + len(new), present + len(batch) - len(new)
            archived += marks.take(batch, new)
        return ImportReport(imported, present, added, archived)

    def _made(self, head: Head) -> dict[str, Category]:
        """Make the categories and schemas of a file; a category that is there keeps its topic and partitions."""
        self._catalogue.register(head.schemas.values())
        return {one.name: self._catalogue.adopt(one) for one in head.categories}

    def _check(self, reader: Reader, path: Path, taken: Taken) -> Sequence[WrappedKey]:
        """Read the whole file and compare it with the store; returns the keys that come along."""
        check_head(reader.head, path)
        self._check_catalogue(reader.head, taken)
        coming = [] if taken.keys is None else _keys_in(reader, path)
        if taken.keys is not None:
            self._transfer.check(coming, taken.keys, erasures=taken.erasures)
        events, ends, subjects = FileEvents(reader.head, path), Ends(), {key.id: key.subject for key in coming}
        for batch in reader.batches(lambda done, total: None):
            events.check(batch, self._known, subjects)
            self._conflicts.check_before(batch, ends)
        return coming

    def _check_catalogue(self, head: Head, taken: Taken) -> None:
        here = {schema.id: schema for schema in self._catalogue.all_schemas()}
        for schema in head.schemas.values():
            if schema.id in here:
                check_same(here[schema.id], schema)
        known = {category.name for category in self._catalogue.all_categories()}
        for category in head.categories:
            if category.name not in known and not taken.topics:
                self._require_own_topic(category)

    def _require_own_topic(self, offered: Category) -> None:
        adopted, own = self._catalogue.topic_of(offered), self._catalogue.own_topic(offered.name)
        if adopted != own:
            raise ImportConflict(
                f"category {offered.name!r} of the file has the topic {adopted!r}, and here it would have {own!r}",
                remedy="open the store with the source and topic prefix of its service: source=, topic_prefix=, "
                "--store-source, --store-topic-prefix, or take over the topics of the file: "
                "topics=True, --with-topics, or declare the category before: declare_category(…, topic=…)",
                place=offered.name,
            )

    def _known(self, ids: Collection[UUID]) -> Mapping[UUID, str | None]:
        """Return those ids that are keys here, with their subjects where the keys are the store's own."""
        return self._subjects.known(ids) if self._keys is None else dict.fromkeys(self._keys.keys(ids))

    def _insert(self, rows: list[dict[str, Any]], batch: Sequence[EventRow]) -> None:
        """Store a batch, or nothing of it; ImportConflict."""
        try:
            with self._database.writing() as connection:
                self._conflicts.check(connection, batch)
                self._database.dialect.insert_rows(connection, rows)
        except DBAPIError as error:
            if self._database.dialect.violated(error) is None:
                raise
            raise self._conflicts.taken(batch) from error


def _values(row: EventRow, category: Category) -> dict[str, Any]:
    stream = str(row.stream)
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
        **asdict(row.metadata),
        "command": row.command,
    }


def _keys_in(reader: Reader, path: Path) -> Sequence[WrappedKey]:
    if reader.head.keys is not None:
        return reader.head.keys
    raise KeysMissing(
        "the file was exported without keys",
        remedy="export it with them: export_file(path, keys=True), factfold store export --with-keys",
        place=str(path),
    )


def _reader(path: Path, form: Format) -> Reader:
    if not path.is_file():
        raise InvalidExport("there is no such file", remedy="check the path", place=str(path))
    if form == "jsonl":
        return JsonLinesReader(path)
    from eventstore.backends.sql.transfer.parquet import ParquetReader  # needs the extra parquet

    return ParquetReader(path)
