"""The bytes of a topic's record → the object they hold, and what its schema says of the fields, if it has one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cdc.changes.semantic_types import Form
from cdc.errors import UndecodableChange
from eventstore.errors import FactfoldError
from eventstore.fields.serialization import AvroDecoder
from eventstore.schema_registry import RegisteredSchema

Lookup = Callable[[int], RegisteredSchema]
Content = tuple[dict[str, Any], Form | None]
_RECENT: Final = 4
# The first byte of a record in Avro: no JSON begins with it.
AVRO_MAGIC: Final = b"\0"


class RecordReader:
    """Reads keys or values of one topic: JSON alone, JSON with its schema, or Avro in Confluent framing.

    ``schemas`` finds the Avro schema of an id, such as ``ConfluentRegistry.schema``.
    """

    def __init__(self, part: str, schemas: Lookup | None) -> None:
        self._part = part
        self._avro = None if schemas is None else AvroDecoder(lambda schema_id: _as_written(schemas(schema_id)))
        self._avro_forms: dict[int, Form] = {}
        self._forms: dict[Form, Form] = {}
        self._recent: list[tuple[Any, Form]] = []

    def read(self, data: bytes, place: str) -> Content:
        """Return the record's object and its form, None where it carries no schema; UndecodableChange.

        Records of one schema have one form, the same object.
        """
        if data[:1] == AVRO_MAGIC:
            return self._read_avro(data, place)
        body = self._object(data, place)
        if body.keys() != {"schema", "payload"} or not isinstance(body["schema"], dict):
            return body, None
        if not isinstance(body["payload"], dict):
            raise self._refused("has a schema and is no object", place)
        return body["payload"], self._form(body["schema"], place)

    def _form(self, schema: Any, place: str) -> Form:
        # Record after record has the same one, or one of a few: partitions differ around a change of the table.
        for known, form in self._recent:
            if known == schema:
                return form
        try:
            form = Form.of_connect(schema)
            form = self._forms.setdefault(form, form)
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise self._refused("has a schema that is none of Connect's", place) from error
        self._recent = [(schema, form), *self._recent[: _RECENT - 1]]
        return form

    def _read_avro(self, data: bytes, place: str) -> Content:
        if self._avro is None:
            raise UndecodableChange(
                f"the record's {self._part} is Avro, and the reader has no schemas",
                remedy="give the registry's: schemas=ConfluentRegistry(…).schema",
                place=place,
            )
        try:
            schema, body = self._avro.decode(data)
            if schema.id not in self._avro_forms:
                self._avro_forms[schema.id] = Form.of_avro(schema.schema)
        except FactfoldError as error:
            raise UndecodableChange(
                f"the record's {self._part}: {error.message}", remedy=error.remedy, place=place
            ) from error
        if not isinstance(body, dict):
            raise self._refused("is Avro and no record", place)
        return body, self._avro_forms[schema.id]

    def _object(self, data: bytes, place: str) -> dict[str, Any]:
        try:
            body = json.loads(data.decode())  # of bytes, it would take other encodings too
        except (ValueError, RecursionError) as error:
            raise self._refused("is not JSON", place) from error
        if not isinstance(body, dict):
            raise self._refused("is no JSON object", place)
        return body

    def _refused(self, what: str, place: str) -> UndecodableChange:
        return UndecodableChange(
            f"the record's {self._part} {what}", remedy="check which writer fills this topic", place=place
        )


def _as_written(registered: RegisteredSchema) -> RegisteredSchema:
    """The schema without Avro's logical types: Connect's names say more, and raw values are read one way."""
    return dataclasses.replace(registered, schema=without_logical_types(registered.schema))


def without_logical_types(schema: Any) -> Any:
    """Return an Avro schema whose values are read as the plain types they are stored in."""
    if isinstance(schema, Mapping):
        return {key: without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return [without_logical_types(member) for member in schema] if isinstance(schema, list) else schema


def fields_of(form: Form | None, name: str | None = None) -> Mapping[str, Form]:
    """Return the forms of a struct's fields, or of those of the struct in its field ``name``; none without a form."""
    if form is None:
        return {}
    fields = dict(form.fields)
    return fields if name is None else dict(fields[name].fields) if name in fields else {}


def commit_time(value: bytes, place: str, *, schemas: Lookup | None = None) -> datetime | None:
    """Return when a change event's transaction was committed by its source's clock, None if the record does not say.

    A row of a snapshot has the snapshot's time.

    Args:
        value: The value of a changelog topic's record.
        place: The record's address for messages.
        schemas: Finds the schema of an id, for records in Avro.

    Raises:
        UndecodableChange: The value is no change event.
    """
    body, _ = RecordReader("value", schemas).read(value, place)
    source = body.get("source")
    moment = source.get("ts_ms") if isinstance(source, dict) else None
    return datetime.fromtimestamp(moment / 1000, UTC) if isinstance(moment, int) else None
