"""What messages, remedies and help texts name exists where Factfold is installed: commands, options, modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from factfold.cli.entry import application
from tests.commands import program
from tests.rows import each_row
from tests.unit.test_documentation import PAGES, blocks

ROOT = Path(__file__).parents[2]
PACKAGES = ("eventstore", "cdc", "projections", "factfold")
# Options of initdb, useradd, Kafka's own programs and Python's.
FOREIGN = {
    "--auth", "--pwfile", "--encoding", "--locale", "--locale-provider", "--builtin-locale",
    "--system", "--no-create-home", "--shell", "--config", "--cluster-id", "--describe", "--delete",
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
