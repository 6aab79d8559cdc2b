"""`factfold store` on a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from eventstore import SqlEventStore
from eventstore.backends.sql.migrating import NEWEST
from eventstore.errors import UnsupportedBackend
from factfold.cli.entry import application


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'events.db'}"


def run(*words: str) -> Result:
    return CliRunner().invoke(application(), ["store", *words])


def test_a_store_is_made_and_told_of(url: str) -> None:
    missing = run("status", "--database", url)
    assert (missing.exit_code, missing.output) == (3, f"version none, this release wants {NEWEST}\n")
    assert run("migrate", "--database", url).output == f"version {NEWEST}, was none\n"
    assert run("migrate", "--database", url).output == f"version {NEWEST}\n"
    with SqlEventStore(url) as store:
        store.declare_category("order", partitions=3)
    made = run("status", "--database", url)
    assert made.exit_code == 0
    assert "category order: topic order, 3 partitions" in made.output


def test_the_status_is_json_where_it_is_asked_for(url: str) -> None:
    run("migrate", "--database", url)
    told = json.loads(run("status", "--database", url, "--json").output)
    assert told["found"] == told["newest"] == NEWEST
    assert told["fence"] == {"waiting": 0, "age": 0.0, "holder": None}


def test_a_dry_run_prints_sql_and_executes_none(url: str) -> None:
    shown = run("migrate", "--database", url, "--dry-run")
    assert "CREATE TABLE IF NOT EXISTS events" in shown.output
    assert run("status", "--database", url).exit_code == 3


@pytest.mark.parametrize("text", ["nonsense", "mysql://u:sentinel@h/d", "nosuch://u:sentinel@h/d"])
def test_a_url_that_is_none_is_refused_and_not_shown(text: str) -> None:
    refused = run("status", "--database", text).exception
    assert isinstance(refused, UnsupportedBackend)
    assert "sentinel" not in str(refused)
