"""What the events of a file hold: values that stay readable, and the subjects they are about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from eventstore.backends.sql.transfer.contents import EventRow, Head, damaged, not_an_event
from eventstore.erasure import keys_in, subjects_in
from eventstore.errors import InvalidIdentifier, KeysMissing, SchemaError
from eventstore.fields.serialization import AvroDecoder, require_avro
from eventstore.schema_registry import RegisteredSchema, fingerprint

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
        return subjects

    def check(self, rows: Iterable[EventRow], known: Known, coming: Mapping[UUID, str]) -> None:
        """Decode events, and refuse one whose key is neither here nor coming, or belongs to another subject.

        ``coming`` has the subjects of the keys that come along. InvalidExport, KeysMissing.
        """
        keys = [
            (row, *key) for row in rows for decoded in self._decoded(row) for key in self._read(row, keys_in, *decoded)
        ]
        elsewhere = {key_id for _, key_id, _ in keys if key_id not in coming}
        subjects = {**known(elsewhere), **coming} if elsewhere else coming
        for row, key_id, subject in keys:
            if key_id not in subjects:
                raise self._keys_missing(row)
            if subjects[key_id] not in (None, subject):
                raise damaged(f"it is about {subject!r}, and sealed under the key of another subject", self.place(row))

    def _keys_missing(self, row: EventRow) -> KeysMissing:
        return KeysMissing(
            "events of the file are sealed under keys that this key store does not know, as "
            f"{row.stream}@{row.version}",
            remedy="export and import with keys=True (--with-keys), or open the store with the key store of the "
            "service that wrote them: SqlEventStore(url, keys=…), --key-store module:name",
            place=self.place(row),
        )

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
