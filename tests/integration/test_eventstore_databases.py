"""Several stores in one database, each in a schema of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, make_url, text
from typer.testing import CliRunner

from cdc import apply_connector, prepare_topics
from eventstore import (
    ANY,
    NO_STREAM,
    Aggregate,
    MasterKeys,
    NewEvent,
    SqlEventStore,
    SqlKeyStore,
    event,
    tenant_store,
    tenants,
)
from eventstore.backends.sql.models import MIGRATIONS, NEWEST, OLDEST, migrate
from eventstore.errors import InvalidSeal, StoreNotPrepared
from eventstore.snapshots import AggregateSnapshot
from factfold.cli.entry import application
from tests.errors import raises
from tests.notes import Note


class Memo(Aggregate):
    @event
    class Sent:
        number: int


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture(params=[(None, "b"), ("a", "b")], ids=["default and own", "two of their own"])
def stores(engine: Engine, request: pytest.FixtureRequest) -> tuple[SqlEventStore, SqlEventStore]:
    one, other = (SqlEventStore(engine, schema=schema) for schema in request.param)
    one.create_tables()
    other.create_tables()
    return one, other


def note(words: str) -> Note.Written:
    return Note.Written(text=words)


def test_what_is_appended_to_one_store_is_not_in_the_other(stores):
    one, other = stores
    shared = uuid4()
    for store, words in ((one, "one"), (other, "other")):
        result = store.append("note-1", [NewEvent(note(words), id=shared)], expected=NO_STREAM)
        assert (result.version, result.positions[0].position) == (0, 1)
    for store, words in ((one, "one"), (other, "other")):
        read = [store.read_stream("note-1"), store.read_all(), store.read_all(category="note"), [store.find(shared)]]
        assert [[e.data["text"] for e in events if e] for events in read] == [[words]] * 4
    one.append("note-1", [note("again")], expected=0)
    assert (one.head("note-1"), other.head("note-1")) == (1, 0)
    assert other.last_position("note") == next(other.read_all()).position
    assert one.delete_stream("note-1", expected=1) == 2
    assert other.head("note-1") == 0


def test_what_one_store_registers_the_other_does_not_know(stores):
    one, other = stores
    one.register(Note, Memo)
    one.declare_category("crate", partitions=7)
    other.declare_category("crate", partitions=3, topic="other.crate")
    one.save_snapshot(AggregateSnapshot("note-1", 0, b"\0\0\0\0\1x"))
    assert [category.name for category in one.categories()] == ["crate", "memo", "note"]
    assert [(category.topic, category.partitions) for category in other.categories()] == [("other.crate", 3)]
    assert (len(one.schemas()), other.schemas(), other.snapshot("note-1")) == (2, [], None)


def run(url: str, script: str) -> None:
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with closing(psycopg.connect(address, autocommit=True)) as connection:
        connection.execute(script)


def differences(store: SqlEventStore) -> list[object]:
    def include(name: str | None, kind: str, parents: object) -> bool:
        return kind != "schema" or name == store.tables.schema

    options = {
        "version_table": MIGRATIONS, "version_table_schema": store.tables.schema, "compare_type": True,
        "include_schemas": True, "include_name": include,
    }  # fmt: skip
    with store.engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), store.tables.metadata))


def test_migrations_of_one_store_leave_the_other_alone(url, engine):
    one, other = SqlEventStore(engine, schema="a"), SqlEventStore(engine, schema="b")
    one.create_tables()
    run(url, f"update a.{MIGRATIONS} set version_num = '9999'")
    other.create_tables()
    assert other.version().is_current
    with raises(StoreNotPrepared, code="store-newer", match="9999"):
        one.create_tables()


def test_a_migration_of_a_schema_leaves_the_connection_as_it_was(engine):
    store = SqlEventStore(engine, schema="a")
    store.create_tables()
    with engine.begin() as connection:
        connection.execute(
            text(f"alter table a.events drop column command; update a.{MIGRATIONS} set version_num = '{OLDEST}'")
        )
        before = connection.scalar(text("show search_path"))
        migrate(connection, store.tables)
    assert differences(store) == []
    with engine.connect() as connection:
        assert connection.scalar(text("show search_path")) == before
        assert connection.scalar(text(f"select version_num from a.{MIGRATIONS}")) == NEWEST
        assert connection.scalar(text("select count(*) from pg_tables where schemaname = 'public'")) == 0


def test_the_sql_that_is_shown_makes_the_schema_too(url, engine):
    store = SqlEventStore(engine, schema="a")
    run(url, store.migration_sql())
    assert store.version().is_current
    assert differences(store) == []
    assert store.append("note-1", [note("x")], expected=ANY).version == 0


@pytest.fixture
def humble(url: str) -> Iterator[str]:
    """The URL of a user who may connect to the database and nothing more."""
    user = f"humble_{uuid4().hex[:8]}"
    run(url, f"create role {user} login password 'humble'")
    yield make_url(url).set(username=user, password="humble").render_as_string(hide_password=False)
    run(url, f"drop owned by {user}; drop role {user}")


def test_a_user_who_may_not_make_the_schema_is_told_what_its_owner_has_to_run(url, humble):
    with SqlEventStore(humble, schema="a") as store:
        with pytest.raises(StoreNotPrepared, match="may not create it") as refused:
            store.create_tables()
        assert "humble:" not in str(refused.value)
        run(url, refused.value.remedy.partition(": ")[2])
        store.create_tables()
        assert store.append("note-1", [note("x")], expected=ANY).version == 0


# ---- A store whose events were numbered by another cluster: found, and renumbered in their order


class Lamp(Aggregate):
    @event
    class Lit:
        room: str


def opened(engine: Engine, tenant: str) -> SqlEventStore:
    store = tenant_store(engine, tenant)
    store.create_tables()
    return store


def test_a_key_copied_into_another_store_does_not_open_there(engine):
    for tenant in ("acme", "globex"):
        opened(engine, tenant)
    SqlEventStore(engine).create_tables()
    master = MasterKeys({"one": os.urandom(32)})
    stores = [SqlKeyStore(engine, master, schema=schema) for schema in ("tenant_acme", "tenant_globex", "public", None)]
    acme, _, public, default = stores
    held = acme.keys_for(["alice"])
    with engine.begin() as connection:
        for schema in ("tenant_globex", "public"):
            connection.execute(text(f"insert into {schema}.subject_keys select * from tenant_acme.subject_keys"))
    for store in stores[1:]:
        with pytest.raises(InvalidSeal):
            store.keys([held["alice"].id])
    assert acme.keys_for(["alice"]) == held
    assert public.keys_for(["bob"]) == default.keys_for(["bob"])


def test_tenants_are_those_who_have_a_store(engine):
    for tenant in ("globex", "acme"):
        opened(engine, tenant)
    SqlEventStore(engine, schema="shop").create_tables()
    with engine.begin() as connection:
        connection.execute(text("create schema tenant_nobody"))
    assert tenants(engine) == ["acme", "globex"]


def test_the_command_lists_tenants_and_says_who_has_to_be_migrated(engine):
    opened(engine, "acme")
    opened(engine, "globex")
    url = engine.url.render_as_string(hide_password=False)
    ask = ["store", "tenants", "--store-url", url]
    assert CliRunner().invoke(application(), ask).exit_code == 0
    with engine.begin() as connection:
        connection.execute(text("alter table tenant_acme.events drop column command"))
        connection.execute(text("update tenant_acme.factfold_migrations set version_num = '0007'"))
    told = CliRunner().invoke(application(), [*ask, "--json"])
    assert told.exit_code == 3
    assert [name for name, version in json.loads(told.output).items() if version["installed"] == "0007"] == ["acme"]
    CliRunner().invoke(application(), ["store", "migrate", "--store-url", url, "--store-schema", "tenant_acme"])
    assert CliRunner().invoke(application(), ask).exit_code == 0


def test_one_connector_publishes_every_tenant_to_topics_of_its_own(captured, connect, settings, records_of):
    made = captured()
    names = [f"{made.name}_{letter}" for letter in "ab"]
    stores = [opened(made.engine, name) for name in names]
    for store, name in zip(stores, names, strict=True):
        store.append("lamp-1", [Lamp.Lit(room=f"{name} early")], expected=ANY)
        prepare_topics(settings, stores=[store])
    tables = tuple(f"tenant_{name}.{table}" for name in names for table in ("events", "schemas"))
    apply_connector(connect, made.prepared(made.outbox(tables=tables)), source=made.engine)
    for store in stores:
        store.append("lamp-1", [Lamp.Lit(room="late")], expected=0)
    for name in names:
        records = records_of(f"{name}-lamp", count=2)
        assert [record.key for record in records] == [b"lamp-1@0", b"lamp-1@1"]
        assert {dict(record.headers)["ce_source"] for record in records} == {f"/{name}".encode()}
        assert f"{name} early".encode() in (records[0].value or b"")
