"""Tables of the store. `events` and `schemas` are outboxes: Debezium publishes a row as it stands.

A change of these tables needs a migration: docs/how-to/maintain-a-store.md.

Key, topic and partition are ordinary columns, since a generated column never reaches a logical replication
stream; `ce_time` repeats `time` as text because Debezium drops trailing zeros of a timestamp.

The store's tables brought to the version of this release; alembic is loaded only where there is something to change.

A new store is made from the models and stamped. An older one runs the migrations that it lacks. A store from before
the first migration begins with that one, which adds missing parts and leaves existing ones.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
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
    insert,
    inspect,
    select,
    text,
)

from eventstore.backends.sql.values import UtcDateTime, keys, needed, optional
from eventstore.errors import StoreNotPrepared
from eventstore.identifiers import check_schema
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from alembic.config import Config


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
            *keys("category"),
            *needed(Text, "topic"),
            *needed(Integer, "partitions", "generation"),
        )
        self.snapshots = Table(
            "snapshots",
            metadata,
            *keys("stream"),
            *needed(Integer, "version", "shape"),
            Column("payload", LargeBinary, nullable=False),
        )
        time = Column("time", DateTime(timezone=True), nullable=False)
        self.archived_streams = Table("archived_streams", metadata, *keys("stream"), time)
        place = needed(BigInteger, "order_xid", "position")
        self.deleted_events = Table("deleted_events", metadata, Column("id", Uuid, primary_key=True), *place)
        self.subject_keys = _subjectkeys(metadata)
        self.subject_streams = Table("subject_streams", metadata, *keys("subject", "stream"))
        self.processes = Table(
            "factfold_processes",
            metadata,
            *keys("process", "instance"),
            *needed(Integer, "version", "code"),
            *needed(Text, "status", "problem"),
            *needed(UtcDateTime, "started", "stepped"),
            Index("factfold_processes_status", "process", "status", "stepped"),
        )
        self.scheduled = _scheduled(metadata)
        # Alembic's own version table, under a name that no user's alembic has.
        key = PrimaryKeyConstraint("version_num", name=f"{MIGRATIONS}_pkc")
        self.migrations = Table(MIGRATIONS, metadata, Column("version_num", String(32), nullable=False), key)


def _events(metadata: MetaData) -> Table:
    return Table(
        "events",
        metadata,
        Column("position", _POSITION, Identity(), primary_key=True),
        Column("id", Uuid, nullable=False),
        Column("stream", Text, nullable=False),
        Column("version", Integer, nullable=False),
        *needed(Text, "category", "type"),
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
        *needed(Text, "topic", "ce_source"),
        Column("time", DateTime(timezone=True), nullable=False),
        Column("ce_time", Text, nullable=False),
        *optional(Text, "correlation_id", "causation_id", "traceparent"),
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


def _subjectkeys(metadata: MetaData) -> Table:
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
        *needed(Text, "kind", "name", "target", "arguments"),
        Column("expires", UtcDateTime),
        *optional(Text, "process", "instance"),
        Column("answered", Boolean, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("error", Text),
        Column("set_at", UtcDateTime, nullable=False),
        *optional(Text, "correlation_id", "causation_id", "traceparent"),
        UniqueConstraint("id", name="factfold_scheduled_id_key"),
        Index("factfold_scheduled_due", "due"),
        Index("factfold_scheduled_instance", "process", "instance"),
        sqlite_autoincrement=True,
    )


# The newest migration. Numbers of four digits compare as text; a test asks alembic whether this is so.
NEWEST: Final = "0007"
_SCRIPTS: Final = "eventstore.backends.sql:migrations"
# These columns distinguish the store's tables from a user's tables of the same name.
_MARKS: Final = {
    "events": "order_xid",
    "schemas": "ce_source",
    "categories": "generation",
    "snapshots": "shape",
    "deleted_events": "order_xid",
    "archived_streams": "time",
}


def version_of(connection: Connection, tables: Tables) -> str | None:
    """Return the migration a store stands at, None where it has none yet."""
    if not inspect(connection).has_table(MIGRATIONS, schema=tables.schema):
        return None
    return connection.execute(select(tables.migrations.c.version_num)).scalar()


def is_current(connection: Connection, tables: Tables) -> bool:
    """Say whether there is nothing to do; StoreNotPrepared."""
    version = version_of(connection, tables)
    if version is not None and version > NEWEST:
        raise StoreNotPrepared(
            f"the event store's tables are at version {version}, this release knows {NEWEST}",
            remedy="run the release that migrated them, or a newer one. A store is never migrated back",
            place=tables.migrations.fullname,
            code="store-newer",
        )
    return version == NEWEST


def bring_up_to_date(connection: Connection, tables: Tables) -> None:
    """Create or migrate within the caller's transaction, which keeps others out; StoreNotPrepared."""
    if is_current(connection, tables):
        return
    if _is_new(connection, tables):
        tables.metadata.create_all(connection)
        connection.execute(insert(tables.migrations).values(version_num=NEWEST))
    else:
        migrate(connection, tables)


def migrate(connection: Connection, tables: Tables) -> None:
    """Run the migrations that are missing, all of them where none was run."""
    from alembic import command

    command.upgrade(_config(tables, connection=connection), NEWEST)


def migration_sql(connection: Connection, tables: Tables) -> str:
    """Return what `migrate` would execute, as SQL text; nothing where there is nothing to do. StoreNotPrepared."""
    if is_current(connection, tables):
        return ""
    from alembic import command

    config = _config(tables, dialect=connection.dialect.name)
    config.output_buffer = StringIO()
    if tables.schema is not None and not inspect(connection).has_schema(tables.schema):
        config.output_buffer.write(f'CREATE SCHEMA "{tables.schema}";\n\n')
    command.upgrade(config, f"{version_of(connection, tables) or 'base'}:{NEWEST}", sql=True)
    return config.output_buffer.getvalue()


def _is_new(connection: Connection, tables: Tables) -> bool:
    """Say whether there is no table yet; StoreNotPrepared where a name is taken by a table that is none of ours."""
    looked = inspect(connection)
    present = [name for name in _MARKS if looked.has_table(name, schema=tables.schema)]
    for name in present:
        if _MARKS[name] not in {column["name"] for column in looked.get_columns(name, schema=tables.schema)}:
            raise StoreNotPrepared(
                f"there is a table {name!r} that is not an event store's",
                remedy='give the store a schema of its own (PostgreSQL: schema="…"), or a file of its own (SQLite)',
                place=shown_url(connection.engine.url),
            )
    return not present and version_of(connection, tables) is None


def _config(tables: Tables, **attributes: Any) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    config.attributes.update(attributes, schema=tables.schema)
    return config
