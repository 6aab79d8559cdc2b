"""Control records as a converter writes them in Avro: 0, the schema's id in 4 bytes, the body."""

from __future__ import annotations

import io
from typing import Any

import fastavro

from eventstore.schema_registry import RegisteredSchema

_TEXT = ["null", "string"]


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


_COUNT = record("event_count", data_collection="string", event_count="long")
MARKER = record(
    "TransactionMetadata", status="string", id="string", ts_ms="long",
    data_collections=["null", {"type": "array", "items": _COUNT}], factfold_epoch=_TEXT,
)  # fmt: skip
NOTIFICATION = record(
    "Notification", id="string", type="string", aggregate_type="string", timestamp="long",
    additional_data=["null", {"type": "map", "values": _TEXT}],
)  # fmt: skip
_SCHEMAS = [MARKER, NOTIFICATION]


def framed(schema: dict[str, Any], body: dict[str, Any]) -> bytes:
    """The bytes of a record's value."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, body)
    return b"\0" + _SCHEMAS.index(schema).to_bytes(4, "big") + written.getvalue()


def schema_of(schema_id: int) -> RegisteredSchema:
    """A registry's answer."""
    schema = _SCHEMAS[schema_id]
    return RegisteredSchema(schema_id, schema["name"], schema)
