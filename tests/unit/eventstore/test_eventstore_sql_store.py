"""What the SQL store writes beyond the port: the outbox columns, the registry, its refusals."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy import create_engine, insert, select
from sqlalchemy.event import listen, remove

from eventstore import (
    ANY,
    NO_STREAM,
    Dispatcher,
    MasterKeys,
    Metadata,
    SqlEventStore,
)
from eventstore.errors import (
    DeclarationError,
    InvalidIdentifier,
    SchemaError,
    StoreNotPrepared,
    StoreUnavailable,
    UnsupportedBackend,
)
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import FenceStatus
from eventstore.topics import SCHEMAS_TOPIC, partition_of
from tests.errors import raises
from tests.orders import PLACED, Order
from tests.rows import each_row
from tests.unit.eventstore.counter import Counter
from tests.unit.eventstore.customer import Customer

NOW = datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC)


@pytest.fixture
def store(url: str) -> Iterator[SqlEventStore]:
    with SqlEventStore(url, source="/shop", clock=lambda: NOW) as store:
        store.create_tables()
        yield store


def _rows(store: SqlEventStore, table: str) -> list[dict[str, Any]]:
    with store.engine.connect() as connection:
        return [dict(row) for row in connection.execute(select(store.tables.metadata.tables[table])).mappings()]


def test_an_event_row_is_a_whole_topic_record(store: SqlEventStore) -> None:
    metadata = Metadata(correlation_id="c", causation_id="d", traceparent="t")
    result = store.append("order-7", [PLACED], expected=NO_STREAM, metadata=metadata)
    (row,) = _rows(store, "events")
    kind = Order.event_types["order.placed"]
    assert row | {"time": None} == {
        "position": 1,
        "id": result.ids[0],
        "stream": "order-7",
        "version": 0,
        "category": "order",
        "type": "order.placed",
        "schema_id": kind.schema_id,
        "payload": kind.encode(PLACED),
        "message_key": "order-7@0",
        "partition": partition_of("order-7", 4),
        "topic": "shop.order",
        "ce_source": "/shop",
        "time": None,
        "ce_time": "2026-01-02T03:04:05.000060Z",
        "correlation_id": "c",
        "causation_id": "d",
        "traceparent": "t",
        "command": None,
        "order_xid": 0,
    }


def test_a_schema_row_is_a_record_of_the_schemas_topic(store: SqlEventStore) -> None:
    store.register(Order)
    rows = {row["message_key"]: row for row in _rows(store, "schemas")}
    kind = Order.event_types["order.shipped"]
    row = rows[str(kind.schema_id)]
    assert (row["topic"], row["partition"], row["schema_id"]) == (SCHEMAS_TOPIC, 0, kind.schema_id)
    assert RegisteredSchema.from_json(row["payload"]) == kind.registered


def test_schemas_are_stored_once_however_many_stores_write(store: SqlEventStore, url: str) -> None:
    store.append("order-1", [PLACED], expected=ANY)
    with SqlEventStore(url) as other:
        other.append("order-2", [PLACED, Order.Shipped(carrier="x")], expected=ANY)
        assert other.schemas() == store.schemas()
        assert len(store.schemas()) == 2


def test_a_schema_whose_id_is_taken_is_refused(store: SqlEventStore) -> None:
    kind = Order.event_types["order.placed"]
    other = RegisteredSchema(kind.schema_id, "order.other", {**kind.schema, "name": "other"})
    row = {
        "schema_id": kind.schema_id,
        "id": uuid4(),
        "type": "x",
        "payload": other.to_json(),
        "message_key": "k",
        "partition": 0,
        "topic": "t",
        "ce_source": "s",
        "time": NOW,
        "ce_time": "",
    }
    with store.engine.begin() as connection:
        connection.execute(insert(store.tables.schemas), row)
    with raises(SchemaError, code="schema-conflict", match=r"order\.other"):
        store.append("order-1", [PLACED], expected=ANY)
    assert _rows(store, "events") == []


def test_a_clock_that_went_backwards_leaves_no_gap_in_what_is_read_up_to_a_time(url: str) -> None:
    times = [NOW + timedelta(seconds=second) for second in (0, 10, 5, 20)]
    with SqlEventStore(url, clock=iter(times).__next__) as store:
        store.create_tables()
        for _ in times:
            store.append("order-1", [PLACED], expected=ANY)
        for second, expected in ((5, [0]), (10, [0, 1, 2]), (20, [0, 1, 2, 3])):
            part = store.read_stream("order-1", until=NOW + timedelta(seconds=second))
            assert [recorded.version for recorded in part] == expected
        assert store.fence() == FenceStatus(0, 0.0, None)


def test_missing_tables_are_named_as_such(url: str) -> None:
    with SqlEventStore(url) as store:
        with pytest.raises(StoreNotPrepared, match="missing"):
            store.append("order-1", [PLACED], expected=ANY)
        with pytest.raises(StoreNotPrepared):
            list(store.read_all())


def test_a_database_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    with SqlEventStore(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}") as store:
        with pytest.raises(StoreUnavailable, match="unable to open"):
            store.create_tables()


def test_an_interrupt_in_the_middle_of_an_append_stays_one_and_nothing_is_stored(store: SqlEventStore) -> None:
    """What is interrupted loses its connection, and with it the transaction: there is nothing to roll back."""
    store.append("order-1", [PLACED], expected=ANY)

    def interrupt(connection: Any, cursor: Any, statement: str, *others: Any) -> None:
        if statement.startswith("INSERT INTO events"):
            raise KeyboardInterrupt

    listen(store.engine, "after_cursor_execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.append("order-1", [Order.Placed(sku="ink")], expected=ANY)
    remove(store.engine, "after_cursor_execute", interrupt)
    assert store.head("order-1") == 0
    assert store.append("order-1", [Order.Placed(sku="ink")], expected=0).version == 1


def test_an_engine_of_the_caller_stays_open(url: str) -> None:
    engine = create_engine(url)
    with SqlEventStore(engine) as store:
        store.create_tables()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select count(*) from events").scalar() == 0
    engine.dispose()


def test_another_database_is_refused() -> None:
    with pytest.raises(UnsupportedBackend, match="sqlite through pysqlcipher"):
        SqlEventStore(_foreign_engine())


def _foreign_engine() -> Any:
    engine = create_engine("sqlite://")
    engine.dialect.driver = "pysqlcipher"
    return engine


@pytest.mark.parametrize("schema", ["Shop", 'a"b', "a.b", "", "a; drop table events"])
def test_a_hostile_schema_name_is_refused(schema: str) -> None:
    with pytest.raises(InvalidIdentifier):
        SqlEventStore("sqlite://", schema=schema)


def _topics(store: SqlEventStore) -> dict[str, str]:
    return {category.name: category.topic for category in store.categories()}


def _sql_store(url: str, **options: Any) -> SqlEventStore:
    store = SqlEventStore(url, **options)
    store.create_tables()
    return store


def test_a_category_that_exists_keeps_its_topic(url: str) -> None:
    with _sql_store(url, source="/shop", topic_prefix="") as earlier:
        earlier.append("order-1", [PLACED], expected=NO_STREAM)
    with _sql_store(url, source="/shop") as store:
        store.append("order-2", [PLACED], expected=NO_STREAM)
        store.append("parcel-1", [PLACED], expected=NO_STREAM)
        assert _topics(store) == {"order": "order", "parcel": "shop.parcel"}
        assert {row["topic"] for row in _rows(store, "events")} == {"order", "shop.parcel"}


def test_a_deletion_has_the_source_of_its_stream(url: str) -> None:
    with _sql_store(url, source="/shop") as store:
        store.append("order-1", [PLACED], expected=NO_STREAM)
    with _sql_store(url) as command_line:
        command_line.delete_stream("order-1", expected=ANY)
        assert {row["ce_source"] for row in _rows(command_line, "events")} == {"/shop"}


def test_a_source_that_names_no_topic_still_writes_to_categories_that_exist(url: str) -> None:
    with _sql_store(url, source="/ü", topic_prefix="") as earlier:
        earlier.append("order-1", [PLACED], expected=NO_STREAM)
    with _sql_store(url, source="/ü") as store:
        store.append("order-2", [PLACED], expected=NO_STREAM)
        with pytest.raises(InvalidIdentifier, match="gives no name for the topic of category 'parcel'"):
            store.append("parcel-1", [PLACED], expected=NO_STREAM)
        assert _topics(store) == {"order": "order"}


@each_row("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_store_in_memory_says_in_another_thread_that_it_belongs_to_one(url: str) -> None:
    with SqlEventStore(url) as store, ThreadPoolExecutor(1) as other:
        store.create_tables()
        with pytest.raises(StoreNotPrepared, match="in memory belongs to the thread that opened it"):
            other.submit(store.head, "order-1").result()
        assert store.head("order-1") is None


def test_a_file_that_is_read_only_or_no_database_is_named(tmp_path: Path) -> None:
    with SqlEventStore(f"sqlite:///{tmp_path}/a.db") as store:
        store.create_tables()
    with (
        SqlEventStore(f"sqlite:///file:{tmp_path}/a.db?mode=ro&uri=true") as store,
        pytest.raises(StoreUnavailable, match="is read-only for this user"),
    ):
        store.declare_category("order", partitions=1)
    (tmp_path / "text.db").write_text("no database " * 400)
    with (
        SqlEventStore(f"sqlite:///{tmp_path}/text.db") as store,
        pytest.raises(StoreNotPrepared, match="no SQLite database"),
    ):
        store.renumber()


def test_master_keys_that_are_still_a_text_are_refused() -> None:
    with pytest.raises(DeclarationError) as refused:
        SqlEventStore("sqlite://", keys="first:bm90IGEga2V5")  # type: ignore[arg-type]
    assert "bm90" not in str(refused.value)


# ---- SQLite's one write lock: the store waits for it, or says which transaction must begin otherwise


KEYS = MasterKeys({"one": os.urandom(32)})
STALE, LOCKED = "read the event store's file before another one wrote", "another connection has the lock"


def engine_that_begins(url: str, how: str | None) -> sa.Engine:
    """Open a file as the driver does, or as SQLAlchemy's recipe for SQLite: the driver leaves it to an event."""
    engine = sa.create_engine(url, connect_args={"timeout": 0})
    return engine if how is None else beginning(engine, how)


def beginning(engine: sa.Engine, how: str) -> sa.Engine:
    @sa.event.listens_for(engine, "connect")
    def leave(driver: Any, record: Any) -> None:
        driver.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(how)

    return engine


@pytest.fixture
def other(tmp_path: Path) -> Iterator[SqlEventStore]:
    """Another process of the service."""
    with SqlEventStore(f"sqlite:///{tmp_path / 'service.db'}", keys=KEYS) as locked_store:
        locked_store.create_tables()
        locked_store.append("counter-a", [Counter.Counted(by=1)], expected=ANY)
        yield locked_store


@pytest.fixture(params=[None, "BEGIN", "BEGIN IMMEDIATE"])
def locked_store(request: pytest.FixtureRequest, other: SqlEventStore) -> Iterator[SqlEventStore]:
    engine = engine_that_begins(str(other.engine.url), request.param)
    yield SqlEventStore(engine, keys=KEYS)
    engine.dispose()


@pytest.fixture
def deferred(other: SqlEventStore) -> Iterator[SqlEventStore]:
    """A service whose transactions begin by BEGIN, as SQLite has it by default."""
    engine = engine_that_begins(str(other.engine.url), "BEGIN")
    yield SqlEventStore(engine, keys=KEYS)
    engine.dispose()


WRITES: dict[str, Callable[[SqlEventStore], Any]] = {
    "append": lambda store: store.append("counter-a", [Counter.Counted(by=1)], expected=ANY),
    "append personal": lambda store: store.append("customer-7", [Customer.Registered(name="Ada")], expected=ANY),
    "register": lambda store: store.register(Customer),
    "declare": lambda store: store.declare_category("orders", partitions=3),
    "archive": lambda store: store.archive_stream("counter-a", expected=ANY),
    "unarchive": lambda store: store.unarchive_stream("counter-a"),
    "delete": lambda store: store.delete_stream("counter-a", expected=ANY),
    "erase": lambda store: store.erase("7"),
    "send": lambda store: Dispatcher(store).send("a", Counter.add, 1),
}  # fmt: skip


@pytest.mark.parametrize("how", [None, "BEGIN", "BEGIN IMMEDIATE"])
def test_an_engine_may_begin_its_transactions_by_an_event(tmp_path: Path, how: str | None) -> None:
    engine = engine_that_begins(f"sqlite:///{tmp_path / 'new.db'}", how)
    locked_store = SqlEventStore(engine, keys=KEYS)
    locked_store.create_tables()
    for write in WRITES.values():
        if write is not WRITES["send"]:  # the stream is deleted by then
            write(locked_store)
    assert locked_store.head("customer-7") == 0
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:  # noqa: PT012
        locked_store.append("customer-8", [Customer.Registered(name="Bea")], expected=ANY, connection=connection)
        raise ZeroDivisionError
    assert locked_store.head("customer-8") is None
    engine.dispose()


@pytest.mark.parametrize("what", WRITES)
def test_a_write_under_the_lock_of_another_connection_is_unavailable(locked_store, other, what):
    with other.engine.connect() as holder:
        holder.exec_driver_sql("begin immediate")
        with pytest.raises(StoreUnavailable, match=LOCKED) as caught:
            WRITES[what](locked_store)
    assert "BEGIN IMMEDIATE" in caught.value.remedy
    WRITES[what](locked_store)


JOINED: dict[str, Callable[[SqlEventStore, sa.Connection], Any]] = {
    "append": lambda store, tx: store.append("counter-a", [Counter.Counted(by=1)], expected=ANY, connection=tx),
    "append to a new category": lambda store, tx: store.append(
        "customer-7", [Customer.Registered(name="Ada")], expected=ANY, connection=tx
    ),
    "append within": lambda store, tx: store.within(tx).append("counter-a", [Counter.Counted(by=1)], expected=ANY),
    "send": lambda store, tx: Dispatcher(store).within(tx).send("a", Counter.add, 1),
    "send a personal command": lambda store, tx: Dispatcher(store).within(tx).send("7", Customer.register, "Ada"),
}


@pytest.mark.parametrize("what", JOINED)
def test_a_transaction_that_read_before_another_one_wrote_is_told_to_begin_immediate(deferred, other, what):
    with deferred.engine.connect() as connection:
        connection.exec_driver_sql("select * from events").all()
        other.append("counter-b", [Counter.Counted(by=1)], expected=ANY)
        with pytest.raises(StoreUnavailable, match=STALE) as caught:
            JOINED[what](deferred, connection)
    assert "BEGIN IMMEDIATE" in caught.value.remedy
    with deferred.engine.begin() as connection:
        JOINED[what](deferred, connection)


@pytest.mark.parametrize("what", JOINED)
def test_a_transaction_that_read_while_another_one_writes_is_told_to_begin_immediate(deferred, other, what):
    with other.engine.connect() as holder, deferred.engine.connect() as connection:
        holder.exec_driver_sql("begin immediate")
        connection.exec_driver_sql("select * from events").all()
        with pytest.raises(StoreUnavailable, match=LOCKED):
            JOINED[what](deferred, connection)


def test_a_transaction_that_has_only_begun_appends_after_whatever_was_written_since(deferred, other):
    with deferred.engine.begin() as connection:
        connection.begin_nested()  # a savepoint reads nothing
        other.append("counter-a", [Counter.Counted(by=1)], expected=ANY)
        assert deferred.append("counter-a", [Counter.Counted(by=1)], expected=ANY, connection=connection).version == 2
