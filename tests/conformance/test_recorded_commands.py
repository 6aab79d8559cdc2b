"""Commands are stored with the first event that they led to, in every store, and personal arguments can be erased."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Annotated
from uuid import uuid4

import pytest
import sqlalchemy as sa

from eventstore import (
    ANY,
    Aggregate,
    AsyncDispatcher,
    AsyncSqlEventStore,
    Dispatcher,
    MasterKeys,
    MemoryEventStore,
    Personal,
    SqlEventStore,
    command,
    event,
)
from eventstore.backends.sql.models import MIGRATIONS, NEWEST
from eventstore.errors import DeclarationError, InvalidEventData, InvalidExport, KeysMissing, UnsupportedFieldType
from eventstore.personal.sealing import Erased
from eventstore.scheduling import Schedule
from eventstore.store import RecordedCommand

pytestmark = pytest.mark.both_databases
KEYS = MasterKeys({"one": os.urandom(32)})


class Order(Aggregate):
    customer: str = ""

    @event
    class Placed:
        customer_id: str
        recipient: Annotated[str, Personal(subject="customer_id", erased="")]
        lines: list[str]

    @event
    class Noted:
        customer_id: str
        text: Annotated[str, Personal(subject="customer_id", erased="")]

    @command
    def place(self, *, customer_id: str, recipient: str, lines: list[str]) -> None:
        self.emit(self.Placed(customer_id=customer_id, recipient=recipient, lines=list(lines)))
        lines.clear()
        self.emit(self.Noted(customer_id=customer_id, text="placed"))

    @command
    def note(self, remark: Annotated[str, Personal(subject="customer_id", erased="")], *, loud: bool = False) -> None:
        self.emit(self.Noted(customer_id=self.customer, text=remark.upper() if loud else remark))

    @command
    def guess(self, who: Annotated[str, Personal(subject="guest_id", erased="")]) -> None:
        self.emit(self.Noted(customer_id=self.customer, text=who))

    @command
    def untyped(self, reason) -> None:
        self.emit(self.Noted(customer_id=self.customer, text=reason))

    def on_placed(self, e: Placed) -> None:
        self.customer = e.customer_id


@pytest.fixture
def store():
    return MemoryEventStore()


def placed(store, order="o1"):
    service = Dispatcher(store, keep_commands=True)
    return service.send_or_raise(order, Order.place, customer_id="7", recipient="Ada", lines=["tea", "ink"])


def commands(store):
    return list(store.commands_of([one.id for one in store.read_all()]).values())


def test_a_command_stands_with_its_first_event_until_the_person_of_its_arguments_is_erased(store):
    first, second = placed(store).events
    Dispatcher(store).send("o1", Order.note, "not recorded")
    Dispatcher(store, keep_commands=True).once(uuid4()).send("o1", Order.note, "ring twice", loud=True)
    assert store.commands_of([second.id]) == {}
    values = {"customer_id": "7", "recipient": "Ada", "lines": ["tea", "ink"]}
    place = RecordedCommand("order.place", values, {"recipient": "7"})
    note = RecordedCommand("order.note", {"remark": "ring twice", "loud": True}, {"remark": "7"})
    assert (store.commands_of([first.id]), commands(store)) == ({first.id: place}, [place, note])
    store.erase("7")
    assert [one.arguments.get("recipient", one.arguments.get("remark")) for one in commands(store)] == [
        Erased(None)
    ] * 2
    assert commands(store)[0].arguments["lines"] == ["tea", "ink"]


def test_what_is_stored_of_a_personal_argument_is_sealed_for_its_event(opened):
    store = opened(keys=KEYS)
    place = placed(store).events[0].id
    table = store.tables.events
    with store.engine.begin() as connection:
        (text,) = connection.execute(sa.select(table.c.command).where(table.c.id == place)).one()
        assert "Ada" not in text
        assert "tea" in text
    with pytest.raises(KeysMissing):
        SqlEventStore(store.engine).commands_of([place])
    store.delete_stream("order-o1", expected=ANY)
    with store.engine.connect() as connection:
        assert set(connection.execute(sa.select(table.c.command)).scalars()) == {None}


@pytest.mark.parametrize("name", ["all.jsonl", "all.parquet"])
def test_commands_go_along_with_an_export_and_with_their_keys(opened, tmp_path, name):
    source, target = opened(keys=KEYS), opened(keys=KEYS)
    placed(source)
    source.export_file(tmp_path / f"without-{name}")
    with pytest.raises(KeysMissing):
        opened(keys=KEYS).import_file(tmp_path / f"without-{name}")
    source.export_file(tmp_path / name, keys=True)
    target.import_file(tmp_path / name, keys=True)
    assert commands(target) == commands(source) != []
    assert list(target.erase("7").streams) == ["order-o1"]
    assert commands(target)[0].arguments["recipient"] == Erased(None)


def test_a_file_with_a_command_that_is_none_is_refused(opened, tmp_path):
    source = opened(keys=KEYS)
    placed(source)
    source.export_file(file := tmp_path / "all.jsonl", keys=True)
    file.write_text(file.read_text("utf-8").replace('"command": "{', '"command": "['), "utf-8")
    with pytest.raises(InvalidExport):
        opened(keys=KEYS).import_file(file, keys=True)


def test_a_command_that_cannot_be_stored_is_refused_before_its_events_are(store):
    placed(store)
    kept = Dispatcher(store, keep_commands=True)
    with pytest.raises(InvalidEventData, match="neither the command nor its events say guest_id"):
        kept.send("o1", Order.guess, "Eve")
    with pytest.raises(DeclarationError, match="no name or no type"):
        kept.send("o1", Order.untyped, "why")
    with pytest.raises(InvalidEventData, match="argument loud"):
        kept.send("o1", Order.note, "x", loud="yes")
    assert store.head("order-o1") == 1


def test_a_personal_argument_is_not_scheduled_in_the_clear(opened):
    with pytest.raises(UnsupportedFieldType, match="in the clear"):
        Schedule(opened(keys=KEYS)).at(datetime.now(UTC)).send("o1", Order.note, "x")


def test_commands_on_a_loop_and_in_a_transaction_are_stored_too(opened, tmp_path):
    store = opened(keys=KEYS)
    with store.engine.begin() as tx:
        Dispatcher(store, keep_commands=True).within(tx).send(
            "o1", Order.place, customer_id="7", recipient="A", lines=[]
        )
    assert [one.name for one in commands(store)] == ["order.place"]

    async def on_a_loop():
        async with AsyncSqlEventStore(f"sqlite+aiosqlite:///{tmp_path / 'loop.db'}", keys=KEYS) as theirs:
            await theirs.create_tables()
            service = AsyncDispatcher(theirs, keep_commands=True)
            sent = await service.send_or_raise("o1", Order.place, customer_id="7", recipient="Ada", lines=[])
            return await theirs.commands_of([sent.events[0].id])

    (found,) = asyncio.run(on_a_loop()).values()
    assert found.arguments["recipient"] == "Ada"


def test_a_store_of_the_release_before_is_migrated(opened):
    store = opened(keys=KEYS)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("alter table events drop column command")
        connection.exec_driver_sql(f"update {MIGRATIONS} set version_num = '0007'")
    store.create_tables()
    assert store.version().installed == NEWEST
    placed(store)
    assert [one.name for one in commands(store)] == ["order.place"]
