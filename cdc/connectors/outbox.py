"""The event store's tables as topic records: Debezium's EventRouter, in the layout of eventstore.topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cdc.connectors.base import topic_creation
from cdc.connectors.postgres import JSON_CONVERTER, PostgresConnector
from eventstore.topics import (
    DEFAULT_PARTITIONS,
    HEADER_COLUMNS,
    HEADER_CONSTANTS,
    SCHEMAS_TOPIC,
    event_topic,
    schemas_topic,
)

_ROUTER: Final = "transforms.outbox"
_HEADER: Final = "org.apache.kafka.connect.transforms.InsertHeader"
_NOT_EVENTS: Final = f"{re.escape(SCHEMAS_TOPIC)}|__debezium-heartbeat.*"


@dataclass(frozen=True, kw_only=True, repr=False)
class OutboxSource(PostgresConnector):
    """The tables `events` and `schemas` of event stores, published as event topics and the schemas topic.

    Records have the key, value, partition and headers of the fixed layout. `on_update` says what an UPDATE of
    an append-only row does: "fatal" stops the connector, since the topic no longer tells what the table says;
    "error" and "warn" only log it. `partitions` serves topics that nobody created before.
    """

    tables: tuple[str, ...] = ("public.events", "public.schemas")
    partitions: int = DEFAULT_PARTITIONS
    on_update: Literal["fatal", "error", "warn"] = "fatal"

    def _output(self) -> dict[str, str]:
        return {
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            **_binary_values(),
            # Connect's own: text as it is, numbers in decimal.
            "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
            **self._snapshot_order(),
            "transforms": ",".join(["outbox", *_constant_names()]),
            **_router(self.on_update),
            **_constants(),
            **dict(topic_creation(self._events_topics(), self._topic_groups())),
        }

    def _snapshot_order(self) -> dict[str, str]:
        # A plain SELECT returns rows as they lie, and may start in the middle of a large table.
        events = [table for table in self.table_names if table.table == "events"] or [self.table_names[0]]
        key = "snapshot.select.statement.overrides"
        return {
            key: ",".join(map(str, events)),
            # The names were checked and are quoted.
            **{f"{key}.{table}": f'SELECT * FROM {table.quoted} ORDER BY "position"' for table in events},  # noqa: S608
        }

    def _events_topics(self) -> dict[str, str]:
        spec = event_topic("any", partitions=self.partitions)
        return _topic_settings(spec.partitions, spec.config)

    def _topic_groups(self) -> dict[str, tuple[str, dict[str, str]]]:
        spec = schemas_topic()
        pattern = re.escape(spec.name)
        return {
            "schemas": (pattern, _topic_settings(spec.partitions, spec.config)),
            "heartbeat": self._heartbeat_group(),
        }


def _topic_settings(partitions: int, config: Mapping[str, str]) -> dict[str, str]:
    return {"partitions": str(partitions), "replication.factor": "-1", **config}


def _binary_values() -> dict[str, str]:
    # The payload column's bytes go out untouched; heartbeats are no bytes and take the delegate.
    delegate = "value.converter.delegate.converter.type"
    return {
        "value.converter": "io.debezium.converters.BinaryDataConverter",
        delegate: JSON_CONVERTER,
        f"{delegate}.schemas.enable": "false",
    }


def _router(on_update: str) -> dict[str, str]:
    placements = ["partition:partition", *(f"{column}:header:{header}" for column, header in HEADER_COLUMNS)]
    return {
        f"{_ROUTER}.type": "io.debezium.transforms.outbox.EventRouter",
        f"{_ROUTER}.table.field.event.id": "id",
        f"{_ROUTER}.table.field.event.key": "message_key",
        f"{_ROUTER}.table.field.event.type": "type",
        f"{_ROUTER}.table.field.event.payload": "payload",
        f"{_ROUTER}.table.fields.additional.placement": ",".join(placements),
        # `schemas` has no stream, version or time.
        f"{_ROUTER}.table.fields.additional.error.on.missing": "false",
        # A row without a payload is an event of a deleted stream.
        f"{_ROUTER}.route.tombstone.on.empty.payload": "true",
        f"{_ROUTER}.table.op.invalid.behavior": on_update,
        f"{_ROUTER}.route.by.field": "topic",
        f"{_ROUTER}.route.topic.replacement": "${routedByValue}",
    }


def _constant_names() -> list[str]:
    return [f"constant{number}" for number in range(len(HEADER_CONSTANTS))]


def _constants() -> dict[str, str]:
    config = {
        "predicates": "otherTopics",
        "predicates.otherTopics.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.otherTopics.pattern": _NOT_EVENTS,
    }
    for name, (header, value) in zip(_constant_names(), HEADER_CONSTANTS, strict=True):
        config[f"transforms.{name}.type"] = _HEADER
        config[f"transforms.{name}.header"] = header
        config[f"transforms.{name}.value.literal"] = _literal(value)
        config[f"transforms.{name}.predicate"] = "otherTopics"
        config[f"transforms.{name}.negate"] = "true"
    return config


def _literal(value: str) -> str:
    """Write a constant so that InsertHeader, which reads numbers and keeps quotes, gives back the same text.

    `1.0` would come out as 1. With a fraction below the precision of the 32-bit float that the transform makes
    of it, it is no whole number to the parser and prints as 1.0.
    """
    return f"{value}000000001" if re.fullmatch(r"[1-9]\.0", value) else value
