"""Tables of the store. `events` and `schemas` are outboxes: Debezium publishes a row as it stands.

A change of these tables needs a migration: docs/how-to/maintain-a-store.md.

Key, topic and partition are ordinary columns, since a generated column never reaches a logical replication
stream; `ce_time` repeats `time` as text because Debezium drops trailing zeros of a timestamp.

The store's tables brought to the version of this release; alembic is loaded only where there is something to change.

A new store is made from the models and stamped. An older one runs the migrations that it lacks.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable, DDLElement

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
_POSITION = sa.BigInteger().with_variant(sa.Integer, "sqlite")

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
        self.metadata = metadata = sa.MetaData(schema=schema)
        self.events, self.schemas = _events(metadata), _schemas(metadata)
        columns = self.events.c
        self.recorded = sa.select(*(columns[name] for name in _RECORDED)).where(columns.payload.is_not(None))
        self.categories = sa.Table(
            "categories",
            metadata,
            *keys("category"),
            *needed(sa.Text, "topic"),
            *needed(sa.Integer, "partitions", "generation"),
        )
        self.snapshots = sa.Table(
            "snapshots",
            metadata,
            *keys("stream"),
            *needed(sa.Integer, "version", "shape"),
            sa.Column("payload", sa.LargeBinary, nullable=False),
        )
        time = sa.Column("time", sa.DateTime(timezone=True), nullable=False)
        self.archived_streams = sa.Table("archived_streams", metadata, *keys("stream"), time)
        place = needed(sa.BigInteger, "order_xid", "position")
        self.deleted_events = sa.Table("deleted_events", metadata, sa.Column("id", sa.Uuid, primary_key=True), *place)
        self.subject_keys = _subjectkeys(metadata)
        self.subject_streams = sa.Table("subject_streams", metadata, *keys("subject", "stream"))
        self.processes = sa.Table(
            "factfold_processes",
            metadata,
            *keys("process", "instance"),
            *needed(sa.Integer, "version", "code"),
            *needed(sa.Text, "status", "problem"),
            *needed(UtcDateTime, "started", "stepped"),
            sa.Index("factfold_processes_status", "process", "status", "stepped"),
        )
        self.scheduled = _scheduled(metadata)
        # Alembic's own version table, under a name that no user's alembic has.
        key = sa.PrimaryKeyConstraint("version_num", name=f"{MIGRATIONS}_pkc")
        self.migrations = sa.Table(MIGRATIONS, metadata, sa.Column("version_num", sa.String(32), nullable=False), key)


def _events(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "events",
        metadata,
        sa.Column("position", _POSITION, sa.Identity(), primary_key=True),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        *needed(sa.Text, "category", "type"),
        sa.Column("schema_id", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary),  # without one it is an event of a deleted stream
        *_record_columns(),
        sa.Column("order_xid", sa.BigInteger, nullable=False),
        sa.Column("command", sa.Text),  # the recorded command, with the first event that it led to
        sa.UniqueConstraint("id", name="events_id_key"),
        sa.UniqueConstraint("stream", "version", name="events_stream_version_key"),
        sa.Index("events_order", "order_xid", "position"),
        sa.Index("events_category_order", "category", "order_xid", "position"),
        sqlite_autoincrement=True,
    )


def _record_columns() -> list[sa.Column[Any]]:
    """Return what places an event's record in Kafka and fills its headers."""
    return [
        sa.Column("message_key", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        *needed(sa.Text, "topic", "ce_source"),
        sa.Column("time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ce_time", sa.Text, nullable=False),
        *optional(sa.Text, "correlation_id", "causation_id", "traceparent"),
    ]


def _schemas(metadata: sa.MetaData) -> sa.Table:
    """Build the registry table, with every header column of `events`, so that one connector serves both."""
    return sa.Table(
        "schemas",
        metadata,
        sa.Column("schema_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        *_record_columns(),
        sa.Column("stream", sa.Text),
        sa.Column("version", sa.Integer),
        sa.Column("position", sa.BigInteger),
        sa.UniqueConstraint("id", name="schemas_id_key"),
    )


def _subjectkeys(metadata: sa.MetaData) -> sa.Table:
    live = sa.text("wrapped IS NOT NULL")
    return sa.Table(
        "subject_keys",
        metadata,
        sa.Column("key_id", sa.Uuid, primary_key=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("wrapped", sa.LargeBinary),
        sa.Column("master", sa.Text),
        sa.Column("erased", sa.DateTime(timezone=True)),
        sa.Column("erasure", sa.BigInteger),
        sa.Index("subject_keys_live", "subject", unique=True, postgresql_where=live, sqlite_where=live),
        sa.Index("subject_keys_erasure", "erasure", unique=True),
    )


def _scheduled(metadata: sa.MetaData) -> sa.Table:
    """Build the table of what is due; what was set aside stands in it with an error, and without a due time."""
    return sa.Table(
        "factfold_scheduled",
        metadata,
        sa.Column("position", _POSITION, sa.Identity(), primary_key=True),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("due", UtcDateTime),
        *needed(sa.Text, "kind", "name", "target", "arguments"),
        sa.Column("expires", UtcDateTime),
        *optional(sa.Text, "process", "instance"),
        sa.Column("answered", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("set_at", UtcDateTime, nullable=False),
        *optional(sa.Text, "correlation_id", "causation_id", "traceparent"),
        sa.UniqueConstraint("id", name="factfold_scheduled_id_key"),
        sa.Index("factfold_scheduled_due", "due"),
        sa.Index("factfold_scheduled_instance", "process", "instance"),
        sqlite_autoincrement=True,
    )


# The newest migration. Numbers of four digits compare as text; a test asks alembic whether this is so.
NEWEST: Final = "0008"
# Tables of an older version are of no release.
OLDEST: Final = "0007"
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


def version_of(connection: sa.Connection, tables: Tables) -> str | None:
    """Return the migration a store stands at, None where it has none yet."""
    if not sa.inspect(connection).has_table(MIGRATIONS, schema=tables.schema):
        return None
    return connection.execute(sa.select(tables.migrations.c.version_num)).scalar()


def is_current(connection: sa.Connection, tables: Tables) -> bool:
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


def bring_up_to_date(connection: sa.Connection, tables: Tables) -> None:
    """Create or migrate within the caller's transaction, which keeps others out; StoreNotPrepared."""
    if is_current(connection, tables):
        return
    if _is_new(connection, tables):
        tables.metadata.create_all(connection)
        connection.execute(sa.insert(tables.migrations).values(version_num=NEWEST))
    else:
        migrate(connection, tables)


def migrate(connection: sa.Connection, tables: Tables) -> None:
    """Run the migrations that are missing."""
    from alembic import command

    command.upgrade(_config(tables, connection=connection), NEWEST)


def migration_sql(connection: sa.Connection, tables: Tables) -> str:
    """Return what `bring_up_to_date` would execute, as SQL text. Empty if there is nothing to do. StoreNotPrepared."""
    if is_current(connection, tables):
        return ""
    if _is_new(connection, tables):
        return _creation_sql(connection, tables)
    from alembic import command

    config = _config(tables, dialect=connection.dialect.name)
    config.output_buffer = StringIO()
    command.upgrade(config, f"{version_of(connection, tables)}:{NEWEST}", sql=True)
    return config.output_buffer.getvalue()


def _creation_sql(connection: sa.Connection, tables: Tables) -> str:
    made: list[DDLElement | sa.Insert] = []
    if tables.schema is not None and not sa.inspect(connection).has_schema(tables.schema):
        made.append(CreateSchema(tables.schema))
    for table in tables.metadata.sorted_tables:
        made += [CreateTable(table), *map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name)))]
    made.append(sa.insert(tables.migrations).values(version_num=sa.literal_column(f"'{NEWEST}'")))
    texts = (str(statement.compile(dialect=connection.dialect)).strip() for statement in made)
    return "".join(f"{text};\n\n" for text in ("BEGIN", *texts, "COMMIT"))


def _is_new(connection: sa.Connection, tables: Tables) -> bool:
    """Say whether there is no table yet; StoreNotPrepared if the tables are another program's, or of no release."""
    looked, version = sa.inspect(connection), version_of(connection, tables)
    present = [name for name in _MARKS if looked.has_table(name, schema=tables.schema)]
    for name in present:
        if _MARKS[name] not in {column["name"] for column in looked.get_columns(name, schema=tables.schema)}:
            raise StoreNotPrepared(
                f"there is a table {name!r} that is not an event store's",
                remedy='give the store a schema of its own (PostgreSQL: schema="…"), or a file of its own (SQLite)',
                place=shown_url(connection.engine.url),
            )
    if (present or version) and (version or "") < OLDEST:
        raise StoreNotPrepared(
            f"the event store's tables are at version {version or 'none'}, which no release had",
            remedy="export it by the code that wrote it (factfold store export), and import it into a new store",
            place=shown_url(connection.engine.url),
        )
    return version is None


def _config(tables: Tables, **attributes: Any) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    config.attributes.update(attributes, schema=tables.schema)
    return config
