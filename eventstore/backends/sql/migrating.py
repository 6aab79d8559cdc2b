"""The store's tables brought to the version of this release; alembic is loaded only where there is something to change.

A new store is made from the models and stamped. An older one runs the migrations that it lacks. A store from before
the first migration begins with that one, which adds missing parts and leaves existing ones.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, insert, inspect, select

from eventstore.backends.sql.models import MIGRATIONS, Tables
from eventstore.errors import StoreNotPrepared
from eventstore.shown_urls import shown_url

if TYPE_CHECKING:
    from alembic.config import Config

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
