"""A PostgreSQL that takes no writes, as after a failover, and a user without a right: typed, and outwaited or named."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from sqlalchemy import make_url

from eventstore import ANY, NO_STREAM, STREAM_EXISTS, Aggregate, Dispatcher, SqlEventStore, command, event
from eventstore.backends.sql import writing
from eventstore.errors import StoreNotPrepared, StoreUnavailable
from eventstore.restarts import passes
from eventstore.snapshots import Snapshots
from tests.rows import each_row


class Order(Aggregate):
    @event
    class Placed:
        sku: str

    @command
    def place(self, *, sku: str) -> None:
        self.emit(self.Placed(sku=sku))


class Parcel(Aggregate):
    @event
    class Sent:
        to: str


PLACED = Order.Placed(sku="tea")
WRITES = {
    "append": lambda store: store.append(f"order-{uuid4()}", [PLACED], expected=NO_STREAM),
    "send": lambda store: Dispatcher(store).send(str(uuid4()), Order.place, sku="tea"),
    "erase": lambda store: store.erase("7"),
    "archive": lambda store: store.archive_stream("order-1", expected=STREAM_EXISTS),
    "unarchive": lambda store: store.unarchive_stream("order-1"),
    "declare": lambda store: store.declare_category(f"c{uuid4().hex}", partitions=1),
    "register": lambda store: store.register(Parcel),
    "snapshot": lambda store: Dispatcher(store, snapshots=Snapshots(store)).take_snapshot(Order, "1"),
    "delete": lambda store: store.delete_stream("order-1", expected=ANY),
}


@pytest.fixture
def url(database):
    url = database()
    with SqlEventStore(url) as store:
        store.create_tables()
        store.append("order-1", [PLACED], expected=NO_STREAM)
    return url


@pytest.fixture
def owner(url):
    """A function that runs a statement as the owner of the tables, who is a superuser."""
    with SqlEventStore(url) as store:

        def run(statement):
            with store.engine.begin() as connection:
                connection.exec_driver_sql("set transaction read write")
                connection.exec_driver_sql(statement)

        yield run


def make_read_only(owner, url, *, on):
    owner(f'alter database "{make_url(url).database}" set default_transaction_read_only = {"on" if on else "off"}')


@each_row("name", WRITES)
def test_a_read_only_server_refuses_for_now(url, owner, monkeypatch, name):
    monkeypatch.setattr(writing, "_LOST_SECONDS", 0.3)
    make_read_only(owner, url, on=True)
    with SqlEventStore(url) as store:
        with pytest.raises(StoreUnavailable, match="is read-only") as refused:
            WRITES[name](store)
        assert passes(refused.value)  # runners start again
        make_read_only(owner, url, on=False)
        if name not in ("archive", "delete"):
            WRITES[name](store)  # on a new connection, which a failover needs


def test_an_append_outwaits_a_failover(url, owner):
    with SqlEventStore(url) as store:
        store.register(Order)
        make_read_only(owner, url, on=True)
        store.engine.dispose()  # a session that is open stays as it is
        back = threading.Timer(0.5, lambda: make_read_only(owner, url, on=False))
        back.start()
        store.append("order-2", [PLACED], expected=NO_STREAM)
        back.join()
        assert store.head("order-2") == 0


@pytest.fixture
def in_schema(url):
    with SqlEventStore(url, schema="shop") as store:
        store.create_tables()
        store.append("order-1", [PLACED], expected=NO_STREAM)


@each_row("name", WRITES)
def test_a_missing_right_is_named_and_its_remedy_gives_it(in_schema, url, owner, name):
    role = f"r{uuid4().hex[:12]}"
    owner(f"create role {role} login password 'secret'")
    with SqlEventStore(make_url(url).set(username=role, password="secret"), schema="shop") as store:
        refused, rights = refusal_of(store, name), []
        while refused is not None:
            assert "a right is missing: permission denied for " in refused.message
            assert not passes(refused)  # waiting does not help
            assert refused.remedy not in rights, "the remedy did not help"
            rights.append(refused.remedy)
            owner(refused.remedy.partition(": ")[2])
            refused = refusal_of(store, name)
        assert rights[0] == f'let the owner run: GRANT USAGE ON SCHEMA "shop" TO "{role}"'
        assert rights[1:]


def refusal_of(store, name):
    try:
        WRITES[name](store)
    except StoreNotPrepared as refused:
        return refused
    return None
