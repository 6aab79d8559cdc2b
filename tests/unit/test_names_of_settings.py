"""One setting has one name in every command: its option, its variable and its key in `factfold.toml` say the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.commands_page import commands
from factfold.settings_file import PLAIN, SECRETS, use_settings_file
from tests.commands import program
from tests.rows import each_row

TABLES = ("kafka", "registry", "spark")


def options() -> Iterator[Any]:
    """Every option of every command."""
    for _, command in commands(program()):
        yield from (parameter for parameter in command.params if parameter.param_type_name == "option")


def variables() -> dict[str, set[tuple[str, ...]]]:
    """The variables that each option reads, its own first."""
    found: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for option in options():
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
    found = {option.opts[0] for option in options() if "SQLAlchemy URL" in (option.help or "")}
    assert found == {"--admin-url", "--inbox-url", "--keys-url", "--source-url", "--store-url", "--views-url"}


def test_an_address_is_a_setting() -> None:
    addresses = {option for option in variables() if option.endswith(("-url", "-servers"))}
    assert addresses <= set(SETTINGS)


def test_the_file_has_no_name_that_nothing_reads() -> None:
    without_option = {"home", "ivy_settings"}  # read by factfold.stack and Spark's jars
    assert PLAIN - without_option == {key for table, key in map(key_of, SETTINGS) if table is None} - SECRETS
