"""PostgreSQL: tables of a database become changelog topics.

The event store's tables as topic records: Debezium's EventRouter, in the layout of eventstore.topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from cdc.connectors.base import topic_creation
from cdc.connectors.debezium import BROKERS_DEFAULT, HEARTBEATS, ChangelogConnector
from cdc.connectors.encodings import BYTES, JSON_CONVERTER, PRESERVED_TIMES, TEXT_OR_BYTES, Modes
from cdc.connectors.postgres_connector import PostgresConnector
from cdc.identifiers import TableName
from cdc.source.grants import check_source
from cdc.transforms import EventRouter, InsertHeader, TopicMatches, Transform
from eventstore.topics import (
    DEFAULT_PARTITIONS,
    HEADER_COLUMNS,
    HEADER_CONSTANTS,
    SCHEMAS_TOPIC,
    TopicSpec,
    event_topic,
    schemas_topic,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine

_NOT_EVENTS: Final = f"{re.escape(SCHEMAS_TOPIC)}|{HEARTBEATS}"


@dataclass(frozen=True, kw_only=True, repr=False)
class OutboxSource(PostgresConnector):
    """Publishes the tables `events` and `schemas` of event stores as event topics and the schemas topic.

    Records have the key, value, partition and headers of the fixed layout.

    Attributes:
        tables: The tables, as `schema.table`.
        partitions: The partition count of topics that do not exist yet.
        on_update: What an UPDATE of an append-only row does. "fatal" stops the connector, since topic and table would
            differ. "error" and "warn" only log it.

    Examples:
        >>> OutboxSource(name="shop_outbox", host="db", database="shop", user="shop_cdc",
        ...              password="${file:/run/secrets/shop.properties:password}", topic_prefix="shop_outbox")
    """

    tables: tuple[str, ...] = ("public.events", "public.schemas")
    partitions: int = DEFAULT_PARTITIONS
    on_update: Literal["fatal", "error", "warn"] = "fatal"

    @property
    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """The schemas topic, as it has to be. The event topics are the store's, see `prepare_topics`."""
        return (schemas_topic(),)

    def check_source(self, engine: Engine) -> None:
        """Check that the database is as this connector needs it. Raises SourceNotReady, which names what is missing."""
        check_source(engine, self)

    def _output(self) -> dict[str, str]:
        return {
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            **_binary_values(),
            # Connect's own: text as it is, numbers in decimal.
            "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
            **self._snapshot_order(),
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

    def _own_transforms(self) -> tuple[Transform, ...]:
        return (_router(self.on_update), *_constants())

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
    return {"partitions": str(partitions), "replication.factor": BROKERS_DEFAULT, **config}


def _binary_values() -> dict[str, str]:
    # The payload column's bytes go out untouched; heartbeats are no bytes and take the delegate.
    delegate = "value.converter.delegate.converter.type"
    return {
        "value.converter": "io.debezium.converters.BinaryDataConverter",
        delegate: JSON_CONVERTER,
        f"{delegate}.schemas.enable": "false",
    }


def _router(on_update: Literal["fatal", "error", "warn"]) -> EventRouter:
    headers = (f"{column}:header:{header}" for column, header in HEADER_COLUMNS)
    return EventRouter(
        name="outbox",
        key="message_key",
        placements=("partition:partition", *headers),
        # `schemas` has no stream, version or time.
        require_placements=False,
        # A row without a payload is an event of a deleted stream.
        tombstone_on_empty_payload=True,
        on_update=on_update,
        route_by="topic",
        topic="${routedByValue}",
    )


def _constants() -> Iterator[InsertHeader]:
    for number, (header, value) in enumerate(HEADER_CONSTANTS):
        others = TopicMatches(pattern=_NOT_EVENTS)
        yield InsertHeader(name=f"constant{number}", when=others, negate=True, header=header, value=value)


@dataclass(frozen=True, kw_only=True, repr=False)
class PostgresSource(ChangelogConnector, PostgresConnector):
    """Captures tables of PostgreSQL as changelog topics `{topic_prefix}.{schema}.{table}`: JSON, compacted.

    A record's key holds the primary key's columns, its value the change event. A tombstone follows a delete. Dates,
    times and intervals are ISO text, decimals are text. `encoding` chooses otherwise.

    Attributes:
        tables: The tables, as `schema.table`.
        truncates: "stop" lets the connector fail at a TRUNCATE, which a compacted topic cannot express. With "skip" it
            goes on, and the rows stay in the topic until `factfold cdc compare --repair` deletes them.

    Examples:
        >>> PostgresSource(name="shop_tables", host="db", database="shop", user="shop_cdc", topic_prefix="shop",
        ...                password="${file:/run/secrets/shop.properties:password}", tables=("public.customers",))
    """

    OWNED = ChangelogConnector.OWNED | PostgresConnector.OWNED | {"skipped.operations"}
    PLAIN: ClassVar[Modes] = {
        "time.precision.mode": ("isostring",),
        "decimal.handling.mode": ("string",),
        # The default, a number of microseconds, takes a month for 30.4 days.
        "interval.handling.mode": ("string",),
        "hstore.handling.mode": ("json",),
        **TEXT_OR_BYTES,
    }
    WITH_SCHEMA: ClassVar[Modes] = {**BYTES, **PRESERVED_TIMES}
    NAMES_PLACEHOLDER: ClassVar[bool] = True

    truncates: Literal["stop", "skip"] = "stop"

    @property
    def captured(self) -> tuple[str, ...]:
        """The tables as declared, `schema.table`."""
        return self.tables

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that its publication must include."""
        return (*super().operations, *(["truncate"] if self.truncates == "stop" else []))

    def check_source(self, engine: Engine) -> None:
        """Check that the database is as this connector needs it. Raises SourceNotReady, which names what is missing."""
        check_source(engine, self)

    def _capture(self) -> dict[str, str]:
        # Debezium's own default is to skip them, after which the topic has rows that the table has not.
        return {**super()._capture(), "skipped.operations": "none" if self.truncates == "stop" else "t"}

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The captured tables, parsed. The signal table is one of them: signals are read as changes."""
        return self._with_signals(self.tables)
