"""Errors have codes, and wrong values are refused by errors of ours."""

from __future__ import annotations

import ast
import json
import pickle
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import cdc
import eventstore
import projections
from eventstore import ANY, Aggregate, NewEvent, StreamAppend, event
from eventstore.errors import (
    FactfoldError,
    KafkaError,
    StoreUnavailable,
    StreamDeleted,
    TopicMissing,
    WrongExpectedVersion,
)
from eventstore.inspection import Selection
from factfold.cli import entry
from tests.rows import each_row

ROOT = Path(__file__).parents[2]
PACKAGES = ("eventstore", "cdc", "projections", "factfold")
PAGE = ROOT / "docs" / "reference" / "errors.md"


def test_an_error_has_the_code_of_its_class_or_of_its_cause():
    assert TopicMissing("gone", remedy="make it").code == "topic-missing"
    assert WrongExpectedVersion("order-1", 1, 2).code == "wrong-expected-version"
    assert KafkaError("busy", remedy="stop it", code="group-active").code == "group-active"


def test_a_code_crosses_the_borders_of_processes():
    assert pickle.loads(pickle.dumps(KafkaError("busy", remedy="stop it", code="group-active"))).code == "group-active"
    assert pickle.loads(pickle.dumps(StreamDeleted("order-1"))).code == "stream-deleted"


@pytest.mark.parametrize(("options", "is_json"), [(["--json"], True), ([], False), (["--", "--json"], False)])
def test_a_failed_command_with_json_writes_its_error_as_json(monkeypatch, capsys, options, is_json):
    def failing(self, ctx):
        error = KafkaError("the group has members", remedy="stop them", place="group x", code="group-active")
        error.add_note("its log ends here")
        raise error

    monkeypatch.setattr(entry._Commands, "invoke", failing)
    monkeypatch.setattr(sys, "argv", ["factfold", "doctor", *options])
    with pytest.raises(SystemExit, match="1"):
        entry.main()
    out, err = capsys.readouterr()
    assert out == ""
    if not is_json:
        assert err.startswith("error: the group has members")
        return
    assert json.loads(err) == {
        "code": "group-active",
        "cause": "the group has members",
        "remedy": "stop them",
        "place": "group x",
        "notes": ["its log ends here"],
    }


def test_the_reference_lists_each_code_of_a_cause_under_its_class():
    assert {(code, kind) for code, kind in _raised() if kind in _classes()} <= _listed()
    assert {code for code, _ in _raised()} == {code for code, _ in _listed()}


def test_a_code_names_one_cause():
    codes = [code for code, _ in _listed()]
    assert sorted(set(codes)) == sorted(codes)
    assert not set(codes) & {_code(kind) for kind in _classes()}


def test_each_class_of_errors_stands_in_the_list_of_its_module():
    missing = {
        name
        for path, tree in _modules()
        if path.name == "errors.py"
        for name in _classes()
        if name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        and not re.search(rf"^\W*{name}( +\S|$)", ast.get_docstring(tree) or "", re.M)
    }
    assert missing == set()


def _code(kind: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind).lower()


def _listed() -> set[tuple[str, str]]:
    """The codes of the page, each with the class that it stands under."""
    listed, kind = set(), ""
    for line in PAGE.read_text().splitlines():
        if heading := re.fullmatch(r"`(\w+)`:", line):
            kind = heading[1]
        elif row := re.match(r"- `([a-z-]+)`: \S", line):
            listed.add((row[1], kind))
    return listed


@cache
def _modules() -> list[tuple[Path, ast.Module]]:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in files]


@cache
def _classes() -> frozenset[str]:
    """The names of all classes of errors."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for _, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found = {FactfoldError.__name__}
    while more := {name for name, over in bases.items() if over & found} - found:
        found |= more
    return frozenset(found)


@cache
def _raised() -> frozenset[tuple[str, str]]:
    """The codes of causes in the product, each with the name of what is called with it."""
    return frozenset(
        (value.value, ast.unparse(node.func))
        for _, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "code"
        for value in ast.walk(keyword.value)  # of a conditional expression, too
        if isinstance(value, ast.Constant) and value.value is not None
    )


# ---- a value of a wrong type is refused by a typed error at each public name, whichever argument it is given for


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
