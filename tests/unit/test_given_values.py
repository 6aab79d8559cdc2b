"""A value of a wrong type is refused by a typed error at each public name, whichever argument it is given for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import cdc
import eventstore
import projections
from eventstore import ANY, Aggregate, NewEvent, StreamAppend, event
from eventstore.errors import FactfoldError, StoreUnavailable
from eventstore.inspection import Selection
from tests.rows import each_row


class Order(Aggregate):
    @event
    class Placed:
        quantity: int


PLACED = Order.Placed(quantity=1)
NOWHERE = eventstore.Settings.for_broker("127.0.0.1:1")
ROWS = sa.Table("customers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with eventstore.SqlEventStore("sqlite:///a.db") as store:
        store.create_tables()
        store.append("order-1", [PLACED], expected=ANY)
        yield store


OF_STORE: dict[str, Callable[[Any, Any], object]] = {
    "find": lambda store, bad: store.find(bad),
    "read_stream": lambda store, bad: list(store.read_stream(bad)),
    "read_stream until": lambda store, bad: list(store.read_stream("order-1", until=bad or "")),
    "read_stream from_version": lambda store, bad: list(store.read_stream("order-1", from_version=bad or "0")),
    "read_stream limit": lambda store, bad: list(store.read_stream("order-1", limit=bad or "0")),
    "append": lambda store, bad: store.append("order-1", bad or None, expected=ANY),
    "append metadata": lambda store, bad: store.append("order-1", [PLACED], expected=ANY, metadata=bad or "x"),
    "NewEvent metadata": lambda store, bad: NewEvent(PLACED, metadata=bad or "x"),
    "StreamAppend metadata": lambda store, bad: StreamAppend("order-1", [PLACED], ANY, bad or "x"),
    "register": lambda store, bad: store.register(bad),
    "export_file": lambda store, bad: store.export_file(bad),
    "import_file": lambda store, bad: store.import_file(bad),
    "erase": lambda store, bad: store.erase(bad if bad != "x" else None),
    "Dispatcher": lambda store, bad: eventstore.Dispatcher(bad),
    "Dispatcher middleware": lambda store, bad: eventstore.Dispatcher(store, middleware=bad or None),
    "once": lambda store, bad: eventstore.Dispatcher(store).once(bad),
    "with_metadata": lambda store, bad: eventstore.Dispatcher(store).with_metadata(bad),
    "load": lambda store, bad: eventstore.Dispatcher(store).load(bad, "1"),
    "Snapshots": lambda store, bad: eventstore.Snapshots(bad),
    "letters": lambda store, bad: projections.letters(bad, "order", group="fraud"),
    "letters group": lambda store, bad: projections.letters(store, "order", group=bad),
    "letters of branches": lambda store, bad: projections.letters(NOWHERE, None if isinstance(bad, str) else bad),
    "letters.replay": lambda store, bad: projections.letters(store, "order", group="fraud").replay(edit=bad or []),
    "letters.show": lambda store, bad: projections.letters(store, "order", group="fraud").show(bad),
    "Selection": lambda store, bad: Selection(since=bad or "x"),
    "MasterKeys.parse": lambda store, bad: eventstore.MasterKeys.parse(bad),
    "Settings.for_broker": lambda store, bad: eventstore.Settings.for_broker(bad if bad != "x" else None),
    "capture": lambda store, bad: cdc.capture_table(bad, ROWS, topic="customers"),
    "capture model": lambda store, bad: cdc.capture_table(store.engine, bad, topic="customers"),
    "from_changelog": lambda store, bad: projections.Table.from_changelog(bad, topic="customers"),
    "cdc.load": lambda store, bad: cdc.load_connectors(bad),
    "write_secrets": lambda store, bad: cdc.write_secrets(bad, "shop", values={}),
    "apply": lambda store, bad: cdc.apply_connector(bad, bad),
    "from_events": lambda store, bad: projections.Table.from_events(Order, key="id", columns={"a": bad}),
    "from_events key": lambda store, bad: projections.Table.from_events(Order, key=bad or None, columns={}),
    "ProjectionGroup": lambda store, bad: projections.ProjectionGroup("shop", bad or 5),
    "field": lambda store, bad: projections.field(bad or None),
}
BAD: list[object] = [None, "", 5, [], {}, "a\0b", b"x", "x", "x" * 3000, object(), True, 1.5, [5]]


# Of these types, some values are right.
RIGHT = {
    **dict.fromkeys(("export_file", "import_file", "field", "from_events key"), (str,)),
    **dict.fromkeys(("read_stream from_version", "read_stream limit"), (int, bool)),
    "Settings.for_broker": (str, bytes),
}


@each_row("bad", BAD, ids=lambda value: repr(value)[:20])
@each_row("use", OF_STORE)
def test_a_wrong_value_is_refused_by_an_error_of_ours(store, use, bad):
    refused = refusal(OF_STORE[use], store, bad)
    assert refused or type(bad) in RIGHT.get(use, ())
    assert refused is None or refused.remedy
    assert store.head("order-1") == 0  # nothing was stored


def refusal(use, store, bad):
    try:
        use(store, bad)
    except FactfoldError as refused:
        return refused
    return None


def test_a_dead_server_and_a_folder_of_nowhere_are_typed(store):
    with pytest.raises(StoreUnavailable):
        eventstore.tenants(sa.create_engine("postgresql+psycopg://u@127.0.0.1:1/x"))
    for path in ("nowhere/x.jsonl", "folder", "", "a.db/x", "x" * 300, "a\0b"):
        with pytest.raises(FactfoldError):
            store.export_file(path)
        with pytest.raises(FactfoldError):
            store.import_file(path)
