from eventstore.kafka.confluent_registry import (
    ConfluentRegistry as ConfluentRegistry,
    configured_registry as configured_registry,
)
