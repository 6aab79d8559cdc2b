"""A subject that was erased shows placeholders in every event about it, in every store, and everybody else does not."""

from __future__ import annotations

import base64
import json
import os
import uuid
from dataclasses import dataclass
from datetime import date
from typing import Annotated

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, Dispatcher, MasterKeys, MemoryEventStore, Personal, SqlEventStore, command, event
from eventstore.erasure import OUT_OF_REACH
from eventstore.errors import DeclarationError, KeysMissing, UnsupportedFieldType
from eventstore.testing.scenario import given
from factfold.cli.entry import main

pytestmark = pytest.mark.postgres_in_faults

KEY, OTHER = os.urandom(32), os.urandom(32)


@dataclass(frozen=True)
class Address:
    street: str
    since: date | None = None


class Customer(Aggregate):
    name: str = ""
    moves: int = 0

    @event
    class Registered:
        name: Annotated[str, Personal(erased="(erased)")]
        home: Annotated[Address | None, Personal()] = None
        plan: str = "basic"

    @command
    def register(self, name: str) -> None:
        self.emit(self.Registered(name=name, home=Address("Main", date(2020, 1, 2))))

    def on_registered(self, e: Registered) -> None:
        self.name = e.name
        self.moves += 1


class Order(Aggregate):
    @event
    class Placed:
        customer_id: int
        recipient: Annotated[str, Personal(subject="customer_id", erased="")]
        amount: int


@pytest.fixture
def sql(opened):
    return opened(keys=MasterKeys({"one": KEY}))


@pytest.fixture
def store():
    return MemoryEventStore()


def customers(store):
    return [event for recorded in store.read_all(category="customer") for event in Customer.events_of(recorded)]


def test_personal_fields_come_back_as_they_were_until_the_subject_is_erased(store):
    dispatcher = Dispatcher(store)
    for number, name in (("7", "Ada"), ("8", "Bob")):
        dispatcher.send(number, Customer.register, name)
    store.append("order-1", [Order.Placed(customer_id=7, recipient="Ada", amount=3)], expected=ANY)
    home = Address("Main", date(2020, 1, 2))
    assert customers(store) == [Customer.Registered(name=name, home=home) for name in ("Ada", "Bob")]

    erased = store.erase("7")
    assert (erased.keys, list(erased.streams)) == (1, ["customer-7", "order-1"])
    assert customers(store) == [
        Customer.Registered(name="(erased)", home=None),
        Customer.Registered(name="Bob", home=home),
    ]
    (placed,) = store.read_stream("order-1")
    assert Order.events_of(placed) == [Order.Placed(customer_id=7, recipient="", amount=3)]
    assert dispatcher.load(Customer, "7").name == "(erased)"
    assert store.erase("7").keys == 0


def test_what_is_stored_shows_nothing_of_it(sql):
    sql.append("customer-7", [Customer.Registered(name="Ada Lovelace")], expected=ANY)
    with sql.engine.connect() as connection:
        rows = [bytes(payload) for payload in connection.scalars(sa.select(sql.tables.events.c.payload))]
        keys = connection.execute(sa.select(sql.tables.subject_keys)).all()
    assert all(b"Ada" not in row and b"basic" in row for row in rows)
    sql.append("customer-7", [Customer.Registered(name="Ada Lovelace")], expected=ANY)
    with sql.engine.connect() as connection:
        again = [bytes(payload) for payload in connection.scalars(sa.select(sql.tables.events.c.payload))]
    assert len(set(again)) == 2, "the same value looks the same twice"
    assert len(keys) == 1


def test_a_store_without_keys_reads_what_is_clear_and_refuses_the_rest(sql):
    sql.append("customer-7", [Customer.Registered(name="Ada", plan="gold")], expected=ANY)
    keyless = SqlEventStore(sql.engine)
    (recorded,) = keyless.read_stream("customer-7")
    assert recorded.data["plan"] == "gold"
    with pytest.raises(KeysMissing, match="sealed"):
        Customer.events_of(recorded)
    with pytest.raises(KeysMissing, match="no keys to seal"):
        keyless.append("customer-8", [Customer.Registered(name="Bob")], expected=ANY)
    assert keyless.head("customer-8") is None
    assert keyless.erase("7").keys == 1  # to destroy a key nobody needs the master key


@pytest.mark.both_databases
def test_sealing_within_a_caller_s_transaction_goes_with_it(sql):
    sql.register(Customer)
    with sql.engine.connect() as connection:
        transaction = connection.begin()
        sql.append("customer-7", [Customer.Registered(name="Ada")], expected=ANY, connection=connection)
        transaction.rollback()
        with connection.begin():
            sql.append("customer-7", [Customer.Registered(name="Bob")], expected=ANY, connection=connection)
    assert [event.name for event in customers(sql)] == ["Bob"]


def test_scenarios_need_no_keys():
    given(Customer, Customer.Registered(name="Ada")).when(Customer.register, "Bob").then_state(name="Bob", moves=2)


def test_an_event_without_a_subject_is_refused():
    class Note(Aggregate):
        @event
        class Written:
            about: str | None
            text: Annotated[str, Personal(subject="about", erased="")]

    with pytest.raises(Exception, match="its subject about is empty"):
        MemoryEventStore().append("note-1", [Note.Written(about=None, text="x")], expected=ANY)


@pytest.mark.parametrize(
    ("hints", "words"),
    [
        ({"name": Annotated[str, Personal()]}, "cannot show None"),
        ({"name": Annotated[int, Personal(erased="x")]}, "cannot show 'x'"),
        ({"names": list[Annotated[str, Personal(erased="")]]}, "personal inside of another value"),
        ({"name": Annotated[str, Personal(subject="missing", erased="")]}, "'missing', is no clear field"),
    ],
)
def test_a_mark_that_cannot_work_is_refused_when_the_class_is_made(hints, words):
    with pytest.raises((UnsupportedFieldType, DeclarationError), match=words):
        event(name="person.named")(type("Named", (), {"__annotations__": hints}))


@pytest.mark.parametrize("text", ["", "one", "one:short", f"one:{base64.b64encode(b'x' * 31).decode()}"])
def test_master_keys_that_are_none_are_refused_and_not_told(text):
    with pytest.raises(DeclarationError) as refused:
        MasterKeys.parse(text)
    assert text == "" or text.partition(":")[2] == "" or text.partition(":")[2] not in str(refused.value)


def test_keys_are_not_told_by_what_shows_them():
    from eventstore.erasure import new_data_key

    key = new_data_key(uuid.uuid4())
    assert repr(key.secret)[2:-1] not in repr(key)
    assert KEY not in repr(MasterKeys({"one": KEY})).encode()


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["factfold", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().out


def test_the_command_forgets_and_says_what_it_does_not_reach(sql, monkeypatch, capsys):
    url = sql.engine.url.render_as_string(hide_password=False)
    sql.append("customer-7", [Customer.Registered(name="Ada")], expected=ANY)
    code, out = run(monkeypatch, capsys, "erase", "7", "--store-url", url, "--yes", "--json")
    assert (code, json.loads(out)["keys"], json.loads(out)["streams"]) == (0, 1, ["customer-7"])
    code, out = run(monkeypatch, capsys, "erase", "7", "--store-url", url, "--yes")
    assert all(place in out for place in OUT_OF_REACH)
    assert [event.name for event in customers(sql)] == ["(erased)"]


def test_the_command_makes_and_rotates_master_keys(sql, monkeypatch, capsys):
    url = sql.engine.url.render_as_string(hide_password=False)
    sql.append("customer-7", [Customer.Registered(name="Ada")], expected=ANY)
    _, made = run(monkeypatch, capsys, "keys", "new", "--name", "fresh")
    monkeypatch.setenv("FACTFOLD_MASTER_KEYS", f"{made.strip()},one:{base64.b64encode(KEY).decode()}")
    assert run(monkeypatch, capsys, "keys", "rotate", "--store-url", url) == (0, "1 keys wrapped again\n")
    assert [e.name for e in customers(SqlEventStore(sql.engine, keys=MasterKeys.parse(made)))] == ["Ada"]
