"""The store's own tables, from any older state to the newest, on both databases."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, make_url

from eventstore import ANY, SqlEventStore
from eventstore.backends.sql import models
from eventstore.backends.sql.models import MIGRATIONS, NEWEST, OLDEST
from eventstore.errors import StoreNotPrepared
from tests.errors import raises
from tests.notes import Note

pytestmark = pytest.mark.both_databases

SCRIPTS = Path(models.__file__).parent / "migrations"
FAILS = """
import sqlalchemy as sa
from alembic import op
revision, down_revision = "9998", "{before}"
def upgrade():
    op.create_table("half", sa.Column("done", sa.Integer))
    op.execute("select no_such_column from events")
"""


@pytest.fixture
def store(url):
    with SqlEventStore(url) as store:
        yield store


def differences(store):
    options = {"version_table": MIGRATIONS, "version_table_schema": store.tables.schema, "compare_type": True}
    with store.engine.connect() as connection:
        if store.tables.schema is not None:
            options["include_schemas"] = True
            options["include_name"] = lambda name, kind, parents: kind != "schema" or name == store.tables.schema
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), store.tables.metadata))


def execute(url, script):
    if url.startswith("sqlite"):
        connection = sqlite3.connect(make_url(url).database or "")
        connection.executescript(script)
        connection.close()
    else:
        with psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(False)) as connection:
            connection.execute(script)


def an_older_store(store, url):
    """A store at the version before the newest, with an event."""
    store.create_tables()
    store.append("note-1", [Note.Written(text="old")], expected=ANY)
    store.engine.dispose()
    execute(url, f"alter table events drop column command; update {MIGRATIONS} set version_num = '{OLDEST}';")


def test_the_newest_version_is_the_last_migration():
    config = Config()
    config.set_main_option("script_location", "eventstore.backends.sql:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_current_head() == NEWEST
    numbers = [script.revision for script in scripts.walk_revisions()]
    assert numbers == sorted(numbers, reverse=True)
    assert {len(number) for number in numbers} == {4}


def test_a_new_store_is_of_the_newest_version(store):
    assert (store.version().installed, store.version().is_current) == (None, False)
    store.create_tables()
    assert (store.version().installed, store.version().is_current) == (NEWEST, True)
    assert differences(store) == []
    assert store.migration_sql() == ""


def test_an_older_store_keeps_its_events_and_gets_what_it_lacks(store, url):
    execute(url, "create table alembic_version (version_num varchar(32)); create table orders (id integer);")
    execute(url, "insert into alembic_version values ('theirs');")
    an_older_store(store, url)
    assert (store.version().installed, store.version().is_current) == (OLDEST, False)
    store.create_tables()
    assert store.version().is_current
    assert {change[1].name for change in differences(store)} == {"alembic_version", "orders"}
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("select version_num from alembic_version").all() == [("theirs",)]
    assert [e.data["text"] for e in store.read_stream("note-1")] == ["old"]
    assert store.append("note-1", [Note.Written(text="new")], expected=0).version == 1


def test_many_processes_may_migrate_at_once(store, url):
    an_older_store(store, url)

    def create(_: int) -> str | None:
        with SqlEventStore(url) as own:
            own.create_tables()
            return own.version().installed

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(create, range(6))) == {NEWEST}
    assert differences(store) == []


def test_the_sql_that_is_shown_makes_a_new_store(store, url):
    script = store.migration_sql()
    assert store.version().installed is None
    store.engine.dispose()
    execute(url, script)
    assert store.version().is_current
    assert differences(store) == []


def test_the_sql_that_is_shown_is_the_migration(store, url):
    an_older_store(store, url)
    script = store.migration_sql()
    assert "ALTER TABLE" in script
    assert store.version().installed == OLDEST
    store.engine.dispose()
    execute(url, script)
    assert store.version().is_current
    assert differences(store) == []


def test_a_store_of_a_newer_release_is_refused(store, url):
    store.create_tables()
    store.engine.dispose()
    execute(url, f"update {MIGRATIONS} set version_num = '9999';")
    for ask in (store.create_tables, store.migration_sql):
        with raises(StoreNotPrepared, code="store-newer", match="at version 9999, this release knows"):
            ask()


@pytest.mark.parametrize("version", [None, "0006"])
def test_tables_that_no_release_made_are_refused(store, url, version):
    store.create_tables()
    store.engine.dispose()
    change = f"update {MIGRATIONS} set version_num = '{version}'" if version else f"drop table {MIGRATIONS}"
    execute(url, f"{change};")
    for ask in (store.create_tables, store.migration_sql):
        with raises(StoreNotPrepared, match=f"at version {version or 'none'}, which no release had"):
            ask()


def test_a_users_table_of_our_name_is_not_taken_for_ours(store, url):
    execute(url, "create table events (id integer, happened text);")
    with pytest.raises(StoreNotPrepared, match="'events' that is not an event store's"):
        store.create_tables()
    assert inspect(store.engine).get_table_names() == ["events"]


def test_a_column_that_is_not_there_yet_says_that_the_store_is_old(store, url):
    store.create_tables()
    store.engine.dispose()
    execute(url, "alter table events drop column traceparent;")
    with pytest.raises(StoreNotPrepared, match="columns of the event store are missing"):
        store.append("note-1", [Note.Written(text="x")], expected=ANY)


def test_a_migration_that_fails_leaves_the_store_as_it_was(store, url, tmp_path, monkeypatch):
    an_older_store(store, url)
    before = set(inspect(store.engine).get_table_names())
    scripts = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, scripts)
    (scripts / "versions" / "v9998_fails.py").write_text(FAILS.format(before=NEWEST))
    monkeypatch.setattr(models, "_SCRIPTS", str(scripts))
    monkeypatch.setattr(models, "NEWEST", "9998")
    with pytest.raises(StoreNotPrepared):
        store.create_tables()
    assert set(inspect(store.engine).get_table_names()) == before
    assert store.version().installed == OLDEST


def test_alembic_is_not_loaded_where_nothing_is_migrated(tmp_path):
    use = f"from eventstore import SqlEventStore; s = SqlEventStore('sqlite:///{tmp_path}/a.db'); s.create_tables()"
    code = f"import sys; {use}; s.create_tables(); assert 'alembic' not in sys.modules; s.close()"
    subprocess.run([sys.executable, "-c", code], check=True)
