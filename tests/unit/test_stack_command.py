"""The command: help, errors, doctor."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from docs.commands_page import commands
from eventstore.errors import FactfoldError
from factfold.cli.entry import application, main
from factfold.cli.show import show_failure
from factfold.stack.errors import ServerFailed
from tests.commands import factfold, program


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTFOLD_HOME", str(tmp_path))


def run(*words: str, env: dict[str, str] | None = None) -> Result:
    return factfold(*words, env=env)


def test_help_lists_every_command_in_five_groups() -> None:
    shown = CliRunner().invoke(application(), ["--help"], env={"COLUMNS": "120"}).output
    panels = re.findall(r"─ (\w+) ─+╮", shown)
    assert panels == ["Options", "Start", "Develop", "Operate", "Look", "Repair"]
    assert {name for name in program().commands if not re.search(rf"^│ {name} ", shown, re.MULTILINE)} == set()


def test_help_shows_options_and_arguments_as_people_write_them() -> None:
    for words, command in commands(program()):
        shown = run(*words, "--help", env={"COLUMNS": "300"}).output
        usage = " ".join(shown.split("\n\n")[0].split())
        assert not re.search(r"<bool>|[{}]|\.\.\.\.|\[\[", usage + shown), words
        names = [one.metavar for one in command.params if one.param_type_name == "argument"]
        assert all(name == name.upper() and name in usage for name in names), words


def test_an_error_is_cause_remedy_and_place_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["factfold", "stack", "status", "--stack", "absent"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: there is no stack 'absent'"
    assert lines[1] == "  remedy: factfold stack up --stack absent"
    assert lines[2].startswith("  at: ")


def test_an_error_without_a_place_has_no_line_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_failure(FactfoldError("it broke [red]", remedy="mend it"))
    assert capsys.readouterr().err == "error: it broke [red]\n  remedy: mend it\n"


def test_a_servers_last_words_are_shown_below_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    show_failure(ServerFailed("it ended", remedy="read", log_tail="FATAL: no"))
    assert capsys.readouterr().err.splitlines()[-1] == "FATAL: no"


@pytest.mark.parametrize("text", ["postgres", "postgres=x", "postgres=0", "postgres=70000"])
def test_a_port_that_is_no_port_is_a_usage_error(text: str) -> None:
    ran = run("stack", "up", "--port", text)
    assert ran.exit_code == 2
    assert "is not SERVER=PORT" in ran.output


def test_down_of_what_was_never_up_is_fine() -> None:
    ran = run("stack", "down")
    assert (ran.exit_code, ran.output) == (0, "nothing was running\n")


def test_doctor_says_what_is_there() -> None:
    ran = run("doctor", "--json")
    found = {finding["check"]: finding for finding in json.loads(ran.output)}
    assert set(found) == {"java", "disk", "postgres", "downloads", "ports"}
    assert found["downloads"]["result"].startswith("0 files present")
    assert "will be fetched" in found["downloads"]["result"]


def test_doctor_says_what_is_missing_and_exits_3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    ran = run("doctor")
    assert ran.exit_code == 3
    assert "error java       no Java was found" in ran.output
    assert "remedy: install Java 17 or newer" in ran.output


def test_doctor_finds_a_file_that_was_damaged(tmp_path: Path) -> None:
    jars = tmp_path / "cache" / "jars"
    jars.mkdir(parents=True)
    (jars / "kafka-clients-3.9.1.jar").write_bytes(b"damaged")
    ran = run("doctor")
    assert ran.exit_code == 3
    assert "kafka-clients-3.9.1.jar has sha256" in ran.output


def test_the_module_is_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "factfold", "stack", "down"],
        capture_output=True,
        text=True,
        env={**os.environ},
    )
    assert ran.stdout == "nothing was running\n"
