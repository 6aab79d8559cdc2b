from eventstore.kafka.admin import ensure_topics as ensure_topics
from eventstore.kafka.confluent_registry import (
    ConfluentRegistry as ConfluentRegistry,
    configured_registry as configured_registry,
)
