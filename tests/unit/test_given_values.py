"""A value of a wrong type is refused by a typed error at each public name, whichever argument it is given for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
import sqlalchemy as sa

import cdc
import eventstore
import projections
from eventstore import ANY, Aggregate, NewEvent, StreamAppend, event
from eventstore.deadletters import store_letters
from eventstore.errors import FactfoldError, StoreUnavailable, WrongType
from eventstore.given_values import with_checked_arguments
from eventstore.inspection import Selection
from tests.rows import each_row


class Order(Aggregate):
    @event
    class Placed:
        quantity: int


PLACED = Order.Placed(quantity=1)
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
    "letters": lambda store, bad: store_letters(bad, "order", group="fraud"),
    "letters.replay": lambda store, bad: store_letters(store, "order", group="fraud").replay(edit=bad or []),
    "letters.show": lambda store, bad: store_letters(store, "order", group="fraud").show(bad),
    "Selection": lambda store, bad: Selection(since=bad or "x"),
    "MasterKeys.parse": lambda store, bad: eventstore.MasterKeys.parse(bad),
    "Settings.for_broker": lambda store, bad: eventstore.Settings.for_broker(bad if bad != "x" else None),
    "capture": lambda store, bad: cdc.capture(bad, ROWS, topic="customers"),
    "capture model": lambda store, bad: cdc.capture(store.engine, bad, topic="customers"),
    "from_changelog": lambda store, bad: projections.Table.from_changelog(bad, topic="customers"),
    "cdc.load": lambda store, bad: cdc.load(bad),
    "write_secrets": lambda store, bad: cdc.write_secrets(bad, "shop", values={}),
    "apply": lambda store, bad: cdc.apply(bad, bad),
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


def takes(
    *topics: str,
    group: str = "g",
    number: float = 1,
    moment: datetime | None = None,
    kind: type[Aggregate] = Order,
    mode: Literal["a", "b"] = "a",
    call: Callable[[], object] = dict,
    names: Sequence[str] = (),
    missing: NoSuchType | None = None,  # noqa: F821 - as one that is imported for type checkers alone
) -> str:
    """Return the group."""
    return group


CHECKED = with_checked_arguments(takes, __name__)


@each_row(
    "given",
    [
        {}, {"number": 2}, {"number": 2.5}, {"moment": datetime.now(UTC)}, {"kind": Order}, {"mode": "c"},
        {"names": ["a"]}, {"names": ("a",)}, {"names": iter("ab")}, {"missing": 5}, {"call": Order},
        {"group": type("Text", (), {})()},
    ],
)  # fmt: skip
def test_what_fits_or_may_do_what_is_asked_of_it_passes(given):
    assert CHECKED("a", "b", **given) == given.get("group", "g")


@each_row(
    "given",
    [
        {"group": None}, {"group": b"x"}, {"number": "1"}, {"moment": "today"}, {"kind": int},
        {"mode": 5}, {"names": "ab"}, {"names": ["a", 5]}, {"call": 5}, {"names": None},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_what_does(given):
    (name,) = given
    with pytest.raises(WrongType, match=f"^{name} of takes ") as refused:
        CHECKED("a", "b", **given)
    assert refused.value.place == name
    assert "annotation" in refused.value.remedy
    assert isinstance(refused.value, TypeError)


def test_values_without_a_name_are_checked_and_secrets_are_not_shown():
    with pytest.raises(WrongType, match=r"^topics of takes "):
        CHECKED("a", 5)
    with pytest.raises(WrongType) as refused:
        eventstore.MasterKeys.parse(b"a secret")
    assert "a secret" not in str(refused.value)


def test_a_checked_function_is_still_found_by_name_and_called_once_more_costs_little():
    import pickle

    assert pickle.loads(pickle.dumps(eventstore.tenants)) is eventstore.tenants
    assert eventstore.tenants is eventstore.tenants
    assert eventstore.SqlEventStore.append.__wrapped__.__name__ == "append"
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        CHECKED(unknown=uuid4())


def test_the_checks_load_no_package():
    program = "import eventstore, sys; eventstore.Dispatcher; eventstore.Snapshots; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
