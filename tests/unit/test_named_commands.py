"""Commands, options and settings that texts name, and examples of documented names."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from doctest import DocTestParser
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from docs.commands_page import commands
from factfold.cli.entry import application
from factfold.settings_file import PLAIN, SECRETS, use_settings_file
from tests.commands import program
from tests.rows import each_row
from tests.unit.test_documentation import PAGES, blocks
from tests.unit.test_site import ENTRIES, ERRORS

ROOT = Path(__file__).parents[2]
PACKAGES = ("eventstore", "cdc", "projections", "factfold")
# Options of initdb, useradd, Kafka's own programs and Python's.
FOREIGN = {
    "--auth", "--pwfile", "--encoding", "--locale", "--locale-provider", "--builtin-locale",
    "--system", "--no-create-home", "--shell", "--config", "--cluster-id", "--describe", "--delete",
    "--verify", "--end-of-options",
}  # fmt: skip

COMMAND = re.compile(r"(?<![\w./-])factfold ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


@cache
def texts(package: str) -> list[tuple[str, str]]:
    """Every text of a package's code with its place. Parts of a formatted text are one, with … for its values."""
    return list(_texts(package))


def _texts(package: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        file = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
                yield f"{file}:{node.lineno}", text
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{file}:{node.lineno}", node.value


def unknown_commands(text: str) -> Iterator[str]:
    """The commands that a text names and the program does not have."""
    for first, second in COMMAND.findall(text):
        found = program().commands.get(first)
        if found is None:
            yield first
        elif second and second != "on" and hasattr(found, "commands") and second not in found.commands:
            yield f"{first} {second}"


def options(command: Any) -> set[str]:
    own = {spelled for one in command.params for spelled in [*one.opts, *one.secondary_opts]}
    return own.union(*(options(inner) for inner in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_text_names_commands_that_exist(package: str) -> None:
    found = [(place, name) for place, text in texts(package) for name in unknown_commands(text)]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_text_names_options_that_exist(package: str) -> None:
    known = options(program()) | FOREIGN | {"--debug", "--help", "--version", "--install-completion"}
    found = [(place, name) for place, text in texts(package) for name in OPTION.findall(text) if name not in known]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_names_what_is_only_in_the_repository(package: str) -> None:
    repository = re.compile(r"\b(sample_app|benchmarks)[./:]")
    assert [(place, text) for place, text in texts(package) if repository.search(text)] == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("run factfold store migrate first", []),
        ("run factfold store migrat first", ["store migrat"]),
        ("run `factfold ups`", ["ups"]),
        ("factfold cdc prepare connectors.toml", []),
    ],
)
def test_the_check_finds_a_command_that_does_not_exist(text: str, unknown: list[str]) -> None:
    assert list(unknown_commands(text)) == unknown


def documented() -> Iterator[tuple[str, list[str]]]:
    """Every command line of the documentation with its place, without what stands behind a pipe or `--`."""
    for page in PAGES:
        for block in blocks(page):
            if block.kind not in ("sh", "text"):
                continue
            for line in "\n".join(block.lines).replace("\\\n", " ").splitlines():
                words = line.removeprefix("$ ").partition(" #")[0].replace('"', " ").split()
                if words[:1] == ["factfold"] and len(words) > 1 and words[1].islower() and words[2:3] != ["on"]:
                    yield f"{page.relative_to(ROOT)}: {line}", words[1:]


DOCUMENTED = dict(documented())


@each_row("place", DOCUMENTED)
def test_a_documented_command_has_its_options(place: str) -> None:
    command, words = program(), DOCUMENTED[place]
    while hasattr(command, "commands"):
        assert words[0] in command.commands, f"{words[0]} is no command"
        command, words = command.commands[words[0]], words[1:]
    stop = next((number for number, word in enumerate(words) if word in ("--", "|", ">", "&&")), len(words))
    given = {word.partition("=")[0] for word in words[:stop] if word.startswith("--")}
    assert given <= options(command) | {"--debug", "--help"}


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    listed: Any = typer.main.get_command(application())
    own = {name: " ".join(command.help.partition("\n\n")[0].split()) for name, command in program().commands.items()}
    assert {name: command.help for name, command in listed.commands.items()} == own


# ---- one setting has one name in every command


TABLES = ("kafka", "registry", "spark")


def settings() -> Iterator[Any]:
    """Every option of every command."""
    for _, command in commands(program()):
        yield from (parameter for parameter in command.params if parameter.param_type_name == "option")


def variables() -> dict[str, set[tuple[str, ...]]]:
    """The variables that each option reads, its own first."""
    found: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for option in settings():
        names = option.envvar or ()
        found[option.opts[0]].add((names,) if isinstance(names, str) else tuple(names))
    return found


SETTINGS = {option: names for option, names in variables().items() if names != {()}}
READ = frozenset(name for found in SETTINGS.values() for names in found for name in names)
"""Every variable that an option reads."""


def key_of(option: str) -> tuple[str | None, str]:
    """The table and the key of an option in the file: `--kafka-bootstrap-servers` is kafka.bootstrap_servers."""
    table, _, name = option.removeprefix("--").replace("-", "_").partition("_")
    return (table, name) if table in TABLES else (None, option.removeprefix("--").replace("-", "_"))


def test_the_commands_have_settings() -> None:
    assert {"--store-url", "--source-url", "--views-url", "--inbox-url", "--kafka-bootstrap-servers"} <= set(SETTINGS)


@each_row("option", SETTINGS)
def test_an_option_has_the_same_variable_in_every_command(option: str) -> None:
    assert len(SETTINGS[option]) == 1, f"{option} reads {SETTINGS[option]}"


@each_row("option", SETTINGS)
def test_the_variable_is_the_name_of_the_option(option: str) -> None:
    ((own, *_),) = SETTINGS[option]
    assert own.removeprefix("FACTFOLD_").replace("__", "_") == option.removeprefix("--").replace("-", "_").upper()


def test_a_variable_belongs_to_one_option() -> None:
    owners = [names[0] for found in SETTINGS.values() for names in found]
    assert sorted(owners) == sorted(set(owners))


@each_row("option", SETTINGS)
def test_the_file_has_the_setting_under_that_name(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((own, *_),) = SETTINGS[option]
    table, key = key_of(option)
    if key in SECRETS:
        return
    monkeypatch.chdir(tmp_path)
    Path("factfold.toml").write_text((f"[{table}]\n" if table else "") + f'{key} = "7"')
    environment: dict[str, str] = {}
    use_settings_file(environment)
    assert environment == {own: "7"}


def test_a_database_is_named_by_what_it_holds() -> None:
    found = {option.opts[0] for option in settings() if "SQLAlchemy URL" in (option.help or "")}
    assert found == {"--admin-url", "--inbox-url", "--keys-url", "--source-url", "--store-url", "--views-url"}


def test_an_address_is_a_setting() -> None:
    addresses = {option for option in variables() if option.endswith(("-url", "-servers"))}
    assert addresses <= set(SETTINGS)


def test_the_file_has_no_name_that_nothing_reads() -> None:
    without_option = {"class_archive", "home", "ivy_settings"}  # read by projections.spark and factfold.stack
    assert PLAIN - without_option == {key for table, key in map(key_of, SETTINGS) if table is None} - SECRETS


# ---- the examples in docstrings of documented names


FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def exemplified():
    """Classes and functions by their entries; errors and constants need no example."""
    values = {}
    for entry in [entry for entry in ENTRIES if entry not in ERRORS]:
        home, _, name = entry.rpartition(".")
        value = getattr(importlib.import_module(home), name)
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if (inspect.isclass(value) or inspect.isfunction(value)) and not is_error:
            values[entry] = value
    return values


VALUES = exemplified()


def statements(docstring):
    """The statements of a docstring's section `Examples`."""
    section = re.split(r"^Examples:$", inspect.cleandoc(docstring or ""), maxsplit=1, flags=re.MULTILINE)[1:]
    return [
        statement
        for text in section
        for example in DocTestParser().get_examples(text)
        for statement in compile(example.source, "<example>", "exec", FLAGS).body
    ]


def named(name):
    """The documented values of a name; two modules may have one each."""
    return [value for entry, value in VALUES.items() if entry.rpartition(".")[2] == name]


def called(call):
    """The documented values that a call may mean, by themselves or as an attribute of a documented class."""
    match call.func:
        case ast.Name(id=name):
            return named(name)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return [getattr(value, attribute) for value in named(name) if inspect.isclass(value)]
    return []


def refusal(value, call):
    """Why a signature refuses a call; None if it takes it, or if the call spreads its arguments."""
    if any(isinstance(argument, ast.Starred) for argument in call.args) or not all(word.arg for word in call.keywords):
        return None
    try:
        inspect.signature(value).bind(*call.args, **{word.arg: None for word in call.keywords})
    except TypeError as error:
        return str(error)
    return None


def mistakes(docstring):
    """Calls of documented names that the signatures of all values of that name refuse."""
    for statement in statements(docstring):
        for call in [node for node in ast.walk(statement) if isinstance(node, ast.Call)]:
            refusals = [refusal(value, call) for value in called(call)]
            if refusals and all(refusals):
                yield f"{ast.unparse(call)}: {refusals[0]}"


@each_row("entry", VALUES)
def test_a_documented_name_has_an_example_that_calls_what_exists(entry):
    docstring = VALUES[entry].__doc__
    assert statements(docstring), f"the docstring of {entry} has no section `Examples:` with a line of >>>"
    assert list(mistakes(docstring)) == []


def test_a_wrong_call_and_a_missing_example_are_seen():
    assert statements("Do it.\n\n>>> 1") == []
    (mistake,) = mistakes("Do it.\n\nExamples:\n    >>> Dispatcher(store, retries=3)\n")
    assert "retries" in mistake
    assert list(mistakes("Do it.\n\nExamples:\n    >>> await AsyncDispatcher(store).send('o1', pay)\n")) == []
    with pytest.raises(AttributeError):
        list(mistakes("Do it.\n\nExamples:\n    >>> Table.from_nothing(1)\n"))
