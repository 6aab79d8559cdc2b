"""The schemas topic read whole: what every reader needs to decode every service's events."""

from __future__ import annotations

from eventstore.kafka.consumer import read_range
from eventstore.schema_registry import RegisteredSchema
from eventstore.settings import Settings
from eventstore.topics import SCHEMAS_TOPIC


def read_schemas(settings: Settings, *, topic: str = SCHEMAS_TOPIC) -> dict[int, RegisteredSchema]:
    """Return every committed schema by its id; TopicMissing before the first `apply`, BrokerUnreachable."""
    values = (record.value for record in read_range(settings, topic))
    schemas = (RegisteredSchema.from_json(value) for value in values if value is not None)
    return {schema.id: schema for schema in schemas}
