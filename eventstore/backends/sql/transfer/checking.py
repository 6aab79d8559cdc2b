"""What the events of a file hold: nothing that nobody could read afterwards, and whom they are about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from eventstore.backends.sql.transfer.contents import EventRow, ExportReader, Head, damaged, not_an_event
from eventstore.erasure import key_ids_in, subjects_in
from eventstore.errors import InvalidIdentifier, KeysMissing, SchemaError
from eventstore.schema_registry import RegisteredSchema
from eventstore.serialization import AvroDecoder


class FileEvents:
    """Decodes the events of a file by the schemas of its head."""

    def __init__(self, head: Head, path: Path) -> None:
        self._path = path
        self._categories = {category.name for category in head.categories}
        self._decoder = AvroDecoder(head.schemas.__getitem__)
        self.are_personal = any(schema.personal for schema in head.schemas.values())
        """Whether any event may have personal fields."""

    def subjects(self, rows: Iterable[EventRow]) -> set[tuple[str, str]]:
        """Return whom events are about (first) and in which streams (second); InvalidExport for what is no event."""
        found: set[tuple[str, str]] = set()
        for row in rows:
            for schema, values in self._decoded(row):
                found |= {(subject, str(row.stream)) for subject in self._read(row, subjects_in, schema, values)}
        return found

    def key_ids(self, rows: Iterable[EventRow]) -> dict[UUID, EventRow]:
        """Return the keys that events are sealed under, each with one of these; InvalidExport."""
        found: dict[UUID, EventRow] = {}
        for row in rows:
            for schema, values in self._decoded(row):
                found |= dict.fromkeys(self._read(row, key_ids_in, schema, values), row)
        return found

    def place(self, row: EventRow) -> str:
        """Return where in the file an event stands."""
        return f"{self._path}, line or row {row.number}"

    def _read(self, row: EventRow, read: Callable[..., set[Any]], schema: RegisteredSchema, values: Any) -> set[Any]:
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


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(map(_has_nul, (*value, *value.values())))
        case list() | tuple():
            return any(map(_has_nul, value))
    return False


def require_keys(
    reader: ExportReader, path: Path, known: Callable[[Collection[UUID]], Collection[UUID]], coming: Sequence[UUID]
) -> None:
    """Read a whole file for keys that are neither known here nor coming with it; KeysMissing, InvalidExport."""
    events, held = FileEvents(reader.head, path), set(coming)
    for batch in reader.batches(lambda done, total: None):
        wanted = events.key_ids(batch)
        held.update(known([key_id for key_id in wanted if key_id not in held]))
        if missing := [row for key_id, row in wanted.items() if key_id not in held]:
            raise KeysMissing(
                f"events of the file are sealed under keys that this key store does not know, as {missing[0].stream}"
                f"@{missing[0].version}",
                remedy="export and import with keys=True (--with-keys), or open the store with the key store of the "
                "service that wrote them: SqlEventStore(url, keys=…), --key-store module:name",
                place=events.place(missing[0]),
            )
