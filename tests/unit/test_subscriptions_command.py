"""What `factfold subscriptions` takes, and what it refuses before it asks anybody."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from eventstore import Subscription
from eventstore.errors import DeclarationError
from factfold.cli.entry import main
from factfold.cli.events.subscriptions import load_subscription, parse_start
from tests.commands import factfold


def test_places_to_move_a_group_to_are_read():
    assert parse_start("beginning") == "beginning"
    assert parse_start("end") == "end"
    assert parse_start("0=12,1=30") == {0: 12, 1: 30}
    assert parse_start("2026-03-01T12:00:00Z") == datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "0=x", "=", "2026-03-01"])
def test_a_place_that_is_none_is_refused(text):
    with pytest.raises(typer.BadParameter):
        parse_start(text)


def test_a_subscription_is_found_by_module_and_name():
    assert isinstance(load_subscription("tests.integration.booking:book"), Subscription)


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ("no_such_module:x", "no_such_module"),
        ("tests.integration.booking:nothing", "nothing"),
        ("tests.integration.booking", "no subscription"),
        ("tests.integration.booking:TOPIC", "is a str"),
    ],
)
def test_a_name_that_leads_to_no_subscription_is_refused(spec, cause):
    with pytest.raises(DeclarationError, match=cause):
        load_subscription(spec)


def test_an_inbox_is_forgotten_only_where_its_database_is_named():
    done = factfold("subscriptions", "reset", "t", "g", "--to", "end", "--forget")
    assert done.exit_code == 2
    assert "--inbox-url" in done.output


@pytest.mark.parametrize(
    "arguments",
    [["--debug", "subscriptions", "run", "no.such:x"], ["subscriptions", "run", "--debug", "no.such:x"],
     ["subscriptions", "run", "no.such:x", "--debug"]],
)  # fmt: skip
def test_debug_shows_a_traceback_wherever_it_stands(monkeypatch, capsys, arguments):
    shown = _error_of(monkeypatch, capsys, arguments)
    assert "Traceback" in shown or 'File "' in shown
    assert "DeclarationError" in shown
    assert "error: " in shown


def test_without_debug_an_error_is_its_cause_and_remedy(monkeypatch, capsys):
    shown = _error_of(monkeypatch, capsys, ["subscriptions", "run", "no.such:x"])
    assert 'File "' not in shown
    assert "  remedy: " in shown


def _error_of(monkeypatch, capsys, arguments):
    monkeypatch.setattr("sys.argv", ["factfold", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    return capsys.readouterr().err
