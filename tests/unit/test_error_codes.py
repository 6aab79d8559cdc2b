"""Each error has a code, and the reference lists each code that a class does not give by its name."""

from __future__ import annotations

import ast
import json
import pickle
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from eventstore.errors import FactfoldError, KafkaError, StreamDeleted, TopicMissing, WrongExpectedVersion
from factfold.cli import entry

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
