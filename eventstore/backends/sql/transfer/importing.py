"""A file's events into a store: their ids, versions and times stay, their places in the store are new.

The whole file is checked before anything of it is applied: its events, its keys, its categories, and all of them
against the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from eventstore.backends.batch import rfc3339
from eventstore.backends.sql.catalogue import SqlCatalogue
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.keys import SqlKeys
from eventstore.backends.sql.transfer.checking import Conflicts, Ends, FileEvents, check_head
from eventstore.backends.sql.transfer.contents import EventRow, Format, Head, Progress, format_of
from eventstore.backends.sql.transfer.jsonl import JsonLinesReader
from eventstore.backends.sql.transfer.keys import KeyTransfer, WrappedKey
from eventstore.backends.sql.transfer.marks import MarkTransfer
from eventstore.erasure import KeyStore, MasterKeys
from eventstore.errors import ImportConflict, InvalidExport, KeysMissing
from eventstore.fields.serialization import schema_id_of
from eventstore.schema_registry import check_same
from eventstore.store import Category
from eventstore.topics import message_key, partition_of

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
        "correlation_id": row.metadata.correlation_id,
        "causation_id": row.metadata.causation_id,
        "traceparent": row.metadata.traceparent,
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
