"""The schemas topic: what every reader needs to decode every service's events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventstore.kafka.admin import OffsetReader
from eventstore.kafka.consumer import read_range
from eventstore.schema_registry import RegisteredSchema, check_same, unknown_schema
from eventstore.settings import Settings
from eventstore.topics import SCHEMAS_TOPIC


def read_schemas(settings: Settings, *, topic: str = SCHEMAS_TOPIC) -> dict[int, RegisteredSchema]:
    """Return every committed schema by its id; TopicMissing before the first `apply_connector`, BrokerUnreachable.

    SchemaError where two registries, or one that has forgotten, gave one id to two schemas.
    """
    schemas: dict[int, RegisteredSchema] = {}
    for record in read_range(settings, topic):
        if record.value is not None:
            _add(schemas, RegisteredSchema.from_json(record.value))
    return schemas


class TopicSchemas:
    """The schemas topic as a registry to read: what is not known yet is looked for once more, at the topic's end.

    Looking costs one round trip where nothing is new, so even a topic full of unknown ids is read on.
    """

    def __init__(self, settings: Settings, *, topic: str = SCHEMAS_TOPIC) -> None:
        self._settings = settings
        self._topic = topic
        self._offsets = OffsetReader(settings)
        self._read_to = 0
        self._schemas: dict[int, RegisteredSchema] = {}
        self._types: set[str] = set()
        self.refresh()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return one schema; UnknownSchema where the topic does not hold it either."""
        if schema_id not in self._schemas:
            self.refresh()
        if schema_id not in self._schemas:
            raise unknown_schema(schema_id, f"topic {self._topic}")
        return self._schemas[schema_id]

    def knows_type(self, name: str) -> bool:
        """Say whether any schema belongs to an event type of this name."""
        if name not in self._types:
            self.refresh()
        return name in self._types

    def refresh(self) -> None:
        """Read what was added; TopicMissing, BrokerUnreachable, SchemaError."""
        end = self._offsets.end_offsets([self._topic])[self._topic][0]
        if end <= self._read_to:
            return
        start = {0: self._read_to} if self._read_to else None
        for record in read_range(self._settings, self._topic, start=start, end={0: end}):
            if record.value is not None:
                schema = RegisteredSchema.from_json(record.value)
                _add(self._schemas, schema)
                self._types.add(schema.name)
        self._read_to = end

    def close(self) -> None:
        """Let the connection go."""
        self._offsets.close()


def add_schemas(
    schemas: Mapping[int, RegisteredSchema], others: Iterable[RegisteredSchema]
) -> dict[int, RegisteredSchema]:
    """Return the schemas of two sources by their ids; SchemaError where both gave one id."""
    together = dict(schemas)
    for schema in others:
        _add(together, schema)
    return together


def _add(schemas: dict[int, RegisteredSchema], schema: RegisteredSchema) -> None:
    """Add a schema. With the newest of two under one id, a reader would misread the events of the other."""
    stored = schemas.setdefault(schema.id, schema)
    if stored is not schema:
        check_same(stored, schema)
