"""Several stores in one database, each in a schema of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, make_url, text

from eventstore import ANY, NO_STREAM, Aggregate, NewEvent, SqlEventStore, event
from eventstore.backends.sql.models import MIGRATIONS, NEWEST, migrate
from eventstore.errors import StoreNotPrepared
from eventstore.snapshots import AggregateSnapshot
from tests.errors import raises


class Note(Aggregate):
    @event
    class Written:
        text: str


class Memo(Aggregate):
    @event
    class Sent:
        number: int


@pytest.fixture
def url(database: Callable[[], str]) -> str:
    return database()


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


def test_what_is_appended_to_one_store_is_not_in_the_other(stores: tuple[SqlEventStore, SqlEventStore]) -> None:
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


def test_what_one_store_registers_the_other_does_not_know(stores: tuple[SqlEventStore, SqlEventStore]) -> None:
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


def test_migrations_of_one_store_leave_the_other_alone(url: str, engine: Engine) -> None:
    one, other = SqlEventStore(engine, schema="a"), SqlEventStore(engine, schema="b")
    one.create_tables()
    run(url, f"update a.{MIGRATIONS} set version_num = '9999'")
    other.create_tables()
    assert other.version().is_current
    with raises(StoreNotPrepared, code="store-newer", match="9999"):
        one.create_tables()


def test_migrations_make_the_tables_of_a_schema_and_leave_the_connection_as_it_was(engine: Engine) -> None:
    store = SqlEventStore(engine, schema="a")
    with engine.begin() as connection:
        before = connection.scalar(text("show search_path"))
        store._database.dialect.guard_tables(connection, store.tables)
        migrate(connection, store.tables)
    assert differences(store) == []
    with engine.connect() as connection:
        assert connection.scalar(text("show search_path")) == before
        assert connection.scalar(text(f"select version_num from a.{MIGRATIONS}")) == NEWEST
        assert connection.scalar(text("select count(*) from pg_tables where schemaname = 'public'")) == 0


def test_the_sql_that_is_shown_makes_the_schema_too(url: str, engine: Engine) -> None:
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


def test_a_user_who_may_not_make_the_schema_is_told_what_its_owner_has_to_run(url: str, humble: str) -> None:
    with SqlEventStore(humble, schema="a") as store:
        with pytest.raises(StoreNotPrepared, match="may not create it") as refused:
            store.create_tables()
        assert "humble:" not in str(refused.value)
        run(url, refused.value.remedy.partition(": ")[2])
        store.create_tables()
        assert store.append("note-1", [note("x")], expected=ANY).version == 0
