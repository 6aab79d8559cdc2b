"""Text of data that would steer a terminal is escaped wherever a command shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
import structlog

from eventstore import subscription
from eventstore.errors import FactfoldError
from factfold.cli.running import log_to_stderr
from factfold.cli.show import ended, show_failure
from factfold.development import supervising
from tests.commands import factfold
from tests.notes import Note
from tests.rows import each_row
from tests.unit.eventstore.handlers import store_of_letters

STEERING = "red\x1b[31m bell\x07 c1\x9b2J turned\u202e over\r"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@subscription("note", group="desk", attempts=1)
def read(event: Note.Written, tx: sa.Connection) -> None:
    raise ValueError(f"cannot read {event.text}")


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path}/notes.db"
    store_of_letters(url, read, *[Note.Written(text=STEERING)] * 2, stream="note-1")
    letter = factfold("dlq", "list", "note", "desk", "--inbox-url", url, "--letters").output.split("\n")[1].split()[0]
    arguments = ("dlq", "discard", "note", "desk", "--inbox-url", url, "--id", letter, "--yes", "--why", STEERING)
    assert factfold(*arguments).exit_code == 0
    return url


LETTERS = [
    ("list",),
    ("list", "--letters"),
    ("list", "--letters", "--json"),
    ("show",),
    ("show", "--json"),
    ("actions",),
]


@each_row("arguments", LETTERS)
def test_a_letter_steers_no_terminal(url, arguments):
    command, *options = arguments
    if command == "show":
        listed = factfold("dlq", "list", "note", "desk", "--inbox-url", url, "--letters").output
        options += ["--id", listed.split("\n")[1].split()[0]]
    shown = factfold("dlq", command, "note", "desk", "--inbox-url", url, *options)
    assert shown.exit_code == 0
    assert "over" in shown.output
    assert not STEERS.search(shown.output)


@each_row("options", [("-n", "5"), ("-n", "5", "--json")])
def test_an_event_steers_no_terminal(url, options):
    shown = factfold("events", "tail", "--store-url", url, *options).output
    assert "over" in shown
    assert not STEERS.search(shown)


def fail():
    raise failed()


def failed():
    return FactfoldError(STEERING, remedy=STEERING, place=STEERING)


SAYS = {
    "an error": lambda: show_failure(failed()),
    "its traceback": lambda: ended(fail, debug=True),
    "its note": lambda: show_failure(noted()),
    "a log": lambda: (log_to_stderr(), structlog.get_logger().warning("x", cause=STEERING)),
    "a traceback in a log": lambda: (log_to_stderr(), structlog.get_logger().warning("x", exception=STEERING)),
    "a log in JSON": lambda: (log_to_stderr(as_json=True), structlog.get_logger().warning("x", cause=STEERING)),
    "a log that was set up twice": lambda: (log_to_stderr(), SAYS["a log"]()),
}


def noted():
    error = failed()
    error.add_note(STEERING)
    return error


@each_row("says", SAYS)
def test_an_error_steers_no_terminal(capsys, says):
    SAYS[says]()
    shown = capsys.readouterr().err
    assert "over" in shown
    assert not STEERS.search(shown)


def test_a_part_of_up_steers_no_terminal():
    process = subprocess.Popen(
        [sys.executable, "-c", f"print({STEERING.rstrip()!r})"], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    with process:
        (line,) = supervising._lines(process)
    assert "over" in line
    assert not STEERS.search(line)


def test_every_command_prints_by_the_function_that_escapes():
    files = [path for path in Path("factfold").rglob("*.py") if "typer.echo(" in path.read_text("utf-8")]
    assert {path.name for path in files} <= {"show.py"}
