"""What a shell completes: definitions of the folder's packages, for each argument that names one."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click
import pytest

from docs.commands_page import commands
from factfold.cli.definitions import complete_package, completes
from tests.commands import factfold, program
from tests.rows import each_row

# Key stores, tables, connectors and functions that prepare a store are values of any kind.
OF_ANY_KIND = {"key_store", "tables", "reference", "prepare"}
NOISY = """
from eventstore import Aggregate, event
print("a module that prints")

class Order(Aggregate):
    @event
    class Placed:
        sku: str
"""


NAMING_A_DEFINITION = [
    (f"{' '.join(words)} {parameter.name}", parameter)
    for words, command in commands(program())
    for parameter in command.params
    if "module:" in (getattr(parameter, "help", "") or "").lower() and parameter.name not in OF_ANY_KIND
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projects")
    with contextlib.chdir(folder):
        assert factfold("new", "teahouse").exit_code == 0
    return folder / "teahouse"


@pytest.fixture
def folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's folder, which is the current one."""
    monkeypatch.chdir(project)
    return project


@each_row(("place", "parameter"), NAMING_A_DEFINITION)
def test_an_argument_that_names_a_definition_is_completed(place: str, parameter: click.Parameter, folder: Path) -> None:
    offered = parameter.shell_complete(click.Context(click.Command("any")), "teahouse")
    assert offered
    assert all(one.value.startswith("teahouse") for one in offered)


def test_only_definitions_of_the_kind_that_begin_with_the_word_are_offered(folder: Path) -> None:
    assert completes("projections")("") == ["teahouse.views:group"]
    assert completes("projections")("teahouse.views:g") == ["teahouse.views:group"]
    assert completes("projections")("other") == []
    assert completes("subscription", "queue")("") == ["teahouse.reviews:review"]
    assert complete_package("tea") == ["teahouse"]


def test_a_folder_without_a_package_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert completes("aggregate")("") == complete_package("") == []


def test_a_shell_gets_words_alone_also_of_modules_that_print_or_fail(folder: Path) -> None:
    (folder / "teahouse" / "noisy.py").write_text(NOISY, encoding="utf-8")
    (folder / "teahouse" / "broken.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    asked = {
        "_FACTFOLD_COMPLETE": "complete_bash",
        "COMP_WORDS": "factfold schema check teahouse.noisy:",
        "COMP_CWORD": "3",
    }
    done = factfold(env=asked)
    assert (done.exit_code, done.stdout.split(), done.stderr) == (0, ["teahouse.noisy:Order"], "")
