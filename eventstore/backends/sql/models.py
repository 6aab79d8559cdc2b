"""Tables of the store. `events` and `schemas` are outboxes: Debezium publishes a row as it stands.

A change of these tables needs a migration: docs/how-to/maintain-a-store.md.

Key, topic and partition are ordinary columns, since a generated column never reaches a logical replication
stream; `ce_time` repeats `time` as text because Debezium drops trailing zeros of a timestamp.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

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


@dataclass(frozen=True)
class Tables:
    """The store's tables within one database schema; None means the connection's default. InvalidIdentifier."""

    schema: str | None

    def __post_init__(self) -> None:
        if self.schema is not None:
            check_schema(self.schema)

    @cached_property
    def metadata(self) -> MetaData:
        """Every table of the store."""
        metadata = MetaData(schema=self.schema)
        _events(metadata), _schemas(metadata), _categories(metadata), _snapshots(metadata), _archived(metadata)
        _deleted_events(metadata), _subject_keys(metadata), _subject_streams(metadata), _migrations(metadata)
        _processes(metadata), _scheduled(metadata)
        return metadata

    @cached_property
    def events(self) -> Table:
        """One row an event."""
        return self._table("events")

    @cached_property
    def schemas(self) -> Table:
        """One row a schema; the default schema registry."""
        return self._table("schemas")

    @cached_property
    def categories(self) -> Table:
        """One row a category: its topic and the partition count fixed for life."""
        return self._table("categories")

    @cached_property
    def snapshots(self) -> Table:
        """One row a stream: its aggregate snapshot."""
        return self._table("snapshots")

    @cached_property
    def deleted_events(self) -> Table:
        """One row a deleted event: the place it had, which a topic may still end with."""
        return self._table("deleted_events")

    @cached_property
    def archived_streams(self) -> Table:
        """One row an archived stream."""
        return self._table("archived_streams")

    @cached_property
    def subject_keys(self) -> Table:
        """One row a data key of a subject, wrapped; without what was wrapped once it is destroyed."""
        return self._table("subject_keys")

    @cached_property
    def subject_streams(self) -> Table:
        """One row a stream that a subject stands in."""
        return self._table("subject_streams")

    @cached_property
    def processes(self) -> Table:
        """One row an instance of a process: where its stream stands, and the lock of the worker that takes a step."""
        return self._table("factfold_processes")

    @cached_property
    def scheduled(self) -> Table:
        """One row a command that is not sent yet, or a timer."""
        return self._table("factfold_scheduled")

    @cached_property
    def migrations(self) -> Table:
        """One row: the version of these tables."""
        return self._table(MIGRATIONS)

    def _table(self, name: str) -> Table:
        return self.metadata.tables[name if self.schema is None else f"{self.schema}.{name}"]


def _events(metadata: MetaData) -> Table:
    return Table(
        "events",
        metadata,
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Uuid, nullable=False),
        Column("stream", Text, nullable=False),
        Column("version", Integer, nullable=False),
        Column("category", Text, nullable=False),
        Column("type", Text, nullable=False),
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


def _record_columns() -> list[Column[object]]:
    """Return what places an event's record in Kafka and fills its headers."""
    return [
        Column("message_key", Text, nullable=False),
        Column("partition", Integer, nullable=False),
        Column("topic", Text, nullable=False),
        Column("ce_source", Text, nullable=False),
        Column("time", DateTime(timezone=True), nullable=False),
        Column("ce_time", Text, nullable=False),
        Column("correlation_id", Text),
        Column("causation_id", Text),
        Column("traceparent", Text),
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


def _categories(metadata: MetaData) -> Table:
    return Table(
        "categories",
        metadata,
        Column("category", Text, primary_key=True),
        Column("topic", Text, nullable=False),
        Column("partitions", Integer, nullable=False),
        Column("generation", Integer, nullable=False),
    )


def _snapshots(metadata: MetaData) -> Table:
    return Table(
        "snapshots",
        metadata,
        Column("stream", Text, primary_key=True),
        Column("version", Integer, nullable=False),
        Column("shape", Integer, nullable=False),
        Column("payload", LargeBinary, nullable=False),
    )


def _archived(metadata: MetaData) -> Table:
    return Table(
        "archived_streams",
        metadata,
        Column("stream", Text, primary_key=True),
        Column("time", DateTime(timezone=True), nullable=False),
    )


def _deleted_events(metadata: MetaData) -> Table:
    return Table(
        "deleted_events",
        metadata,
        Column("id", Uuid, primary_key=True),
        Column("order_xid", BigInteger, nullable=False),
        Column("position", BigInteger, nullable=False),
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


def _subject_streams(metadata: MetaData) -> Table:
    return Table(
        "subject_streams",
        metadata,
        Column("subject", Text, primary_key=True),
        Column("stream", Text, primary_key=True),
    )


def _processes(metadata: MetaData) -> Table:
    return Table(
        "factfold_processes",
        metadata,
        Column("process", Text, primary_key=True),
        Column("instance", Text, primary_key=True),
        Column("version", Integer, nullable=False),
        Column("code", Integer, nullable=False),
        Column("status", Text, nullable=False),
        Column("problem", Text, nullable=False),
        Column("started", UtcDateTime, nullable=False),
        Column("stepped", UtcDateTime, nullable=False),
        Index("factfold_processes_status", "process", "status", "stepped"),
    )


def _scheduled(metadata: MetaData) -> Table:
    """Build the table of what is due; what was set aside stands in it with an error, and without a due time."""
    return Table(
        "factfold_scheduled",
        metadata,
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Uuid, nullable=False),
        Column("due", UtcDateTime),
        Column("kind", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("target", Text, nullable=False),
        Column("arguments", Text, nullable=False),
        Column("expires", UtcDateTime),
        Column("process", Text),
        Column("instance", Text),
        Column("answered", Boolean, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("error", Text),
        Column("set_at", UtcDateTime, nullable=False),
        Column("correlation_id", Text),
        Column("causation_id", Text),
        Column("traceparent", Text),
        UniqueConstraint("id", name="factfold_scheduled_id_key"),
        Index("factfold_scheduled_due", "due"),
        Index("factfold_scheduled_instance", "process", "instance"),
        sqlite_autoincrement=True,
    )


def _migrations(metadata: MetaData) -> Table:
    """Build alembic's own version table, under a name that no user's alembic has."""
    return Table(
        MIGRATIONS,
        metadata,
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{MIGRATIONS}_pkc"),
    )
