"""A store's events into a file, in store order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Row, Select, exists, func, or_, select, tuple_

from eventstore.backends.sql.catalogue import SqlCatalogue
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.transfer.contents import BATCH, ExportWriter, Format, Head, Progress, format_of
from eventstore.backends.sql.transfer.jsonl import JsonLinesWriter
from eventstore.backends.sql.transfer.keys import KeyTransfer
from eventstore.backends.sql.transfer.marks import archived_at
from eventstore.backends.sql.utc_times import in_utc
from eventstore.fields.serialization import AvroDecoder
from eventstore.identifiers import Position, check_category
from eventstore.schema_registry import RegisteredSchema


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
        query = self._of(select(columns.order_xid, columns.position), category)
        query = query.order_by(columns.order_xid.desc(), columns.position.desc()).limit(1)
        with self._connect() as connection:
            row = connection.execute(query).first()
            total = connection.execute(self._of(select(func.count()), category)).scalar_one()
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
        used = self._of(select(self._events.c.schema_id).distinct(), category)
        with self._connect() as connection:
            ids = set(connection.execute(used).scalars())
        return [schema for schema in schemas if schema.id in ids]

    def _pages(self, category: str | None, last: Position | None) -> Iterator[Sequence[Row[Any]]]:
        columns = self._events.c
        place = tuple_(columns.order_xid, columns.position)
        names = ("id", "stream", "version", "type", "ce_time", "ce_source", "payload")
        why = ("correlation_id", "causation_id", "traceparent", "order_xid", "position")
        archived = archived_at(self._events, self._archived)
        marked = self._events.outerjoin(self._archived, self._archived.c.stream == columns.stream)
        query = self._of(select(*(columns[n] for n in (*names, *why)), archived).select_from(marked), category)
        query = query.order_by(columns.order_xid, columns.position).limit(BATCH)
        page: Sequence[Row[Any]] = []
        while last is not None:
            bounded = query.where(place <= tuple_(*last))
            if page:
                bounded = bounded.where(place > tuple_(page[-1].order_xid, page[-1].position))
            with self._connect() as connection:
                page = connection.execute(bounded).all()
            if not page:
                return
            yield page

    def _of(self, query: Select[Any], category: str | None) -> Select[Any]:
        columns = self._events.c
        later = self._events.alias("later")
        behind = exists().where(later.c.stream == columns.stream, later.c.version == columns.version + 1)
        # Of a deleted stream, only the row behind its last event goes along: it says that there was one.
        exported = or_(columns.payload.is_not(None), ~behind)
        query = query.where(self._dialect.fence(columns.order_xid), exported)
        return query if category is None else query.where(columns.category == check_category(category))

    def _values(self, row: Row[Any]) -> Mapping[str, Any]:
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
            "data": data,
            "payload": row.payload,
            "archived": None if row.archived is None else in_utc(row.archived),
        }


def _private(path: Path) -> Path:
    """Make an empty file that its owner alone may read: it will hold events, and keys where they are asked for."""
    path.unlink(missing_ok=True)  # of an export that was killed
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def _writer(path: Path, head: Head, form: Format) -> ExportWriter:
    if form == "jsonl":
        return JsonLinesWriter(path, head)
    from eventstore.backends.sql.transfer.parquet import ParquetWriter  # needs the extra parquet

    return ParquetWriter(path, head)
