"""Tables of the store. `events` and `schemas` are outboxes: Debezium publishes a row as it stands.

A change of these tables needs a migration: docs/how-to/maintain-a-store.md.

Key, topic and partition are ordinary columns, since a generated column never reaches a logical replication
stream; `ce_time` repeats `time` as text because Debezium drops trailing zeros of a timestamp.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    select,
    text,
)

from eventstore.backends.sql.utc_times import UtcDateTime
from eventstore.identifiers import check_schema

MIGRATIONS: Final = "factfold_migrations"
TABLES_MISSING: Final = (
    "tables or columns of the event store are missing",
    "run factfold store migrate, or call create_tables() of the event store. Check the schema's name",
)

# SQLite numbers rows by itself only where the key is its own INTEGER type.
_POSITION = BigInteger().with_variant(Integer, "sqlite")

_RECORDED: Final = (
    "id", "stream", "version", "type", "payload", "ce_time", "order_xid", "position",
    "correlation_id", "causation_id", "traceparent",
)  # fmt: skip


class Tables:
    """The store's tables within one database schema; None means the connection's default. InvalidIdentifier.

    Attributes:
        events: One row an event.
        schemas: One row a schema; the default schema registry.
        categories: One row a category: its topic and the partition count fixed for life.
        snapshots: One row a stream: its aggregate snapshot.
        archived_streams: One row an archived stream.
        deleted_events: One row a deleted event: the place it had, which a topic may still end with.
        subject_keys: One row a data key of a subject, wrapped; without what was wrapped once it is destroyed.
        subject_streams: One row a stream that a subject stands in.
        processes: One row an instance of a process: where its stream stands, and the lock of the worker of a step.
        scheduled: One row a command that is not sent yet, or a timer.
        migrations: One row: the version of these tables.
        recorded: The columns of an event that a reader needs, without the events of deleted streams.
    """

    def __init__(self, schema: str | None) -> None:
        if schema is not None:
            check_schema(schema)
        self.schema = schema
        self.metadata = metadata = MetaData(schema=schema)
        self.events, self.schemas = _events(metadata), _schemas(metadata)
        columns = self.events.c
        self.recorded = select(*(columns[name] for name in _RECORDED)).where(columns.payload.is_not(None))
        self.categories = Table(
            "categories",
            metadata,
            Column("category", Text, primary_key=True),
            Column("topic", Text, nullable=False),
            *_needed(Integer, "partitions", "generation"),
        )
        self.snapshots = Table(
            "snapshots",
            metadata,
            Column("stream", Text, primary_key=True),
            *_needed(Integer, "version", "shape"),
            Column("payload", LargeBinary, nullable=False),
        )
        time = Column("time", DateTime(timezone=True), nullable=False)
        self.archived_streams = Table("archived_streams", metadata, Column("stream", Text, primary_key=True), time)
        place = _needed(BigInteger, "order_xid", "position")
        self.deleted_events = Table("deleted_events", metadata, Column("id", Uuid, primary_key=True), *place)
        self.subject_keys = _subject_keys(metadata)
        self.subject_streams = Table("subject_streams", metadata, *_keys("subject", "stream"))
        self.processes = Table(
            "factfold_processes",
            metadata,
            *_keys("process", "instance"),
            *_needed(Integer, "version", "code"),
            *_needed(Text, "status", "problem"),
            *_needed(UtcDateTime, "started", "stepped"),
            Index("factfold_processes_status", "process", "status", "stepped"),
        )
        self.scheduled = _scheduled(metadata)
        # Alembic's own version table, under a name that no user's alembic has.
        key = PrimaryKeyConstraint("version_num", name=f"{MIGRATIONS}_pkc")
        self.migrations = Table(MIGRATIONS, metadata, Column("version_num", String(32), nullable=False), key)


def _keys(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, primary_key=True) for name in names]


def _needed(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def _optional(kind: Any, *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


def _events(metadata: MetaData) -> Table:
    return Table(
        "events",
        metadata,
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Uuid, nullable=False),
        Column("stream", Text, nullable=False),
        Column("version", Integer, nullable=False),
        *_needed(Text, "category", "type"),
        Column("schema_id", Integer, nullable=False),
        Column("payload", LargeBinary),  # without one it is an event of a deleted stream
        *_record_columns(),
        Column("order_xid", BigInteger, nullable=False),
        UniqueConstraint("id", name="events_id_key"),
        UniqueConstraint("stream", "version", name="events_stream_version_key"),
        Index("events_order", "order_xid", "position"),
        Index("events_category_order", "category", "order_xid", "position"),
        sqlite_autoincrement=True,
    )


def _record_columns() -> list[Column[Any]]:
    """Return what places an event's record in Kafka and fills its headers."""
    return [
        Column("message_key", Text, nullable=False),
        Column("partition", Integer, nullable=False),
        *_needed(Text, "topic", "ce_source"),
        Column("time", DateTime(timezone=True), nullable=False),
        Column("ce_time", Text, nullable=False),
        *_optional(Text, "correlation_id", "causation_id", "traceparent"),
    ]


def _schemas(metadata: MetaData) -> Table:
    """Build the registry table, with every header column of `events`, so that one connector serves both."""
    return Table(
        "schemas",
        metadata,
        Column("schema_id", Integer, primary_key=True, autoincrement=False),
        Column("id", Uuid, nullable=False),
        Column("type", Text, nullable=False),
        Column("payload", LargeBinary, nullable=False),
        *_record_columns(),
        Column("stream", Text),
        Column("version", Integer),
        Column("position", BigInteger),
        UniqueConstraint("id", name="schemas_id_key"),
    )


def _subject_keys(metadata: MetaData) -> Table:
    live = text("wrapped IS NOT NULL")
    return Table(
        "subject_keys",
        metadata,
        Column("key_id", Uuid, primary_key=True),
        Column("subject", Text, nullable=False),
        Column("wrapped", LargeBinary),
        Column("master", Text),
        Column("erased", DateTime(timezone=True)),
        Column("erasure", BigInteger),
        Index("subject_keys_live", "subject", unique=True, postgresql_where=live, sqlite_where=live),
        Index("subject_keys_erasure", "erasure", unique=True),
    )


def _scheduled(metadata: MetaData) -> Table:
    """Build the table of what is due; what was set aside stands in it with an error, and without a due time."""
    return Table(
        "factfold_scheduled",
        metadata,
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Uuid, nullable=False),
        Column("due", UtcDateTime),
        *_needed(Text, "kind", "name", "target", "arguments"),
        Column("expires", UtcDateTime),
        *_optional(Text, "process", "instance"),
        Column("answered", Boolean, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("error", Text),
        Column("set_at", UtcDateTime, nullable=False),
        *_optional(Text, "correlation_id", "causation_id", "traceparent"),
        UniqueConstraint("id", name="factfold_scheduled_id_key"),
        Index("factfold_scheduled_due", "due"),
        Index("factfold_scheduled_instance", "process", "instance"),
        sqlite_autoincrement=True,
    )
