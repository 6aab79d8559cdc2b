"""What a target stands for: a package with its modules, a module, or one definition."""

from __future__ import annotations

import sys

import pytest

from eventstore.errors import DeclarationError
from factfold.console.definitions import find_definitions
from tests.unit.console import teashop
from tests.unit.console.conftest import TEASHOP


def test_a_module_stands_for_everything_that_it_declares():
    found = find_definitions([TEASHOP])
    assert found.groups == {f"{TEASHOP}:group": teashop.group}
    assert set(found.branches) == {f"{TEASHOP}:order_branches"}
    assert set(found.subscriptions) == {f"{TEASHOP}:review"}
    assert set(found.processes) == {f"{TEASHOP}:Payment"}
    assert set(found.aggregates) == {f"{TEASHOP}:Order", f"{TEASHOP}:Person"}


def test_one_definition_stands_for_itself():
    assert find_definitions([f"{TEASHOP}:review"]).count == 1


def test_what_two_targets_name_is_found_once():
    assert find_definitions([TEASHOP, f"{TEASHOP}:group", TEASHOP]).count == find_definitions([TEASHOP]).count


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a broken module, a module inside a package, and one that runs when it is imported."""
    (tmp_path / "kiosk" / "inner").mkdir(parents=True)
    (tmp_path / "kiosk" / "__init__.py").write_text("")
    (tmp_path / "kiosk" / "broken.py").write_text("import nothing_of_the_kind")
    (tmp_path / "kiosk" / "__main__.py").write_text("raise SystemExit(5)")
    (tmp_path / "kiosk" / "inner" / "__init__.py").write_text("")
    (tmp_path / "kiosk" / "inner" / "ships.py").write_text(f"from {TEASHOP} import review")
    monkeypatch.syspath_prepend(tmp_path)
    yield "kiosk"
    for name in [name for name in sys.modules if name.partition(".")[0] == "kiosk"]:
        del sys.modules[name]


def test_a_package_stands_for_its_modules_and_a_broken_one_is_a_problem(package):
    found = find_definitions([package])
    assert set(found.subscriptions) == {"kiosk.inner.ships:review"}
    (problem,) = found.problems
    assert (problem.place, "nothing_of_the_kind" in problem.cause) == ("kiosk.broken", True)


def test_a_broken_module_that_is_named_ends_the_command(package):
    with pytest.raises(DeclarationError, match=r"kiosk\.broken cannot be imported"):
        find_definitions([f"{package}.broken"])
