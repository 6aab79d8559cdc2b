"""The recordings, read back: what each encoding's topics hold."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eventstore.schema_registry import RegisteredSchema

RECORDED = Path(__file__).with_name("postgres.json.gz")


@dataclass(frozen=True)
class Recording:
    """One encoding: the records (key, value) of each topic in their order, and the Avro schemas by id."""

    encoding: str
    topics: Mapping[str, list[tuple[bytes | None, bytes | None]]]
    schemas: Mapping[int, Any]

    def schema(self, schema_id: int) -> RegisteredSchema:
        """As a registry would."""
        found = self.schemas[schema_id]
        return RegisteredSchema(schema_id, f"{found['namespace']}.{found['name']}", found)

    @property
    def is_avro(self) -> bool:
        """Whether keys and values are Avro."""
        return bool(self.schemas)


@cache
def recordings() -> Mapping[str, Recording]:
    """Every encoding by its name."""
    found = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return {name: _recording(name, held) for name, held in found.items()}


def _recording(name: str, held: Mapping[str, Any]) -> Recording:
    schemas = {int(schema_id): schema for schema_id, schema in held["schemas"].items()}
    read = _base64 if schemas else _text
    topics = {topic: [(read(k), read(v)) for k, v in records] for topic, records in held["topics"].items()}
    return Recording(name, topics, schemas)


def _base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
