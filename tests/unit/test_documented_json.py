"""The page for programs names every key that the commands print."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from projections.rebuilding.comparing import ViewComparison
from projections.rebuilding.rebuild import RebuildReport
from projections.rebuilding.verifying import ViewVerdict
from projections.spark.live.incremental import BatchReport
from projections.tablestore.port import DifferingRow

PAGE = Path(__file__).parents[2] / "docs/how-to/use-the-commands-from-programs.md"


def documented(command):
    """The keys in a command's line of the table: code outside of brackets."""
    (line,) = [found for found in PAGE.read_text().splitlines() if found.startswith(f"| `{command}`")]
    return re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", line.split("|")[2]))


def fields(kind):
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("rebuild", [*fields(RebuildReport), "records_per_second"]),
        ("diff", [*fields(ViewComparison), "equal"]),
        ("verify", [*fields(ViewVerdict), "equal"]),
        ("run", fields(BatchReport)),
    ],
)
def test_the_keys_of_reports_are_those_of_the_page(command, keys):
    assert documented(command) == keys


def test_the_keys_of_a_row_that_differs_are_those_of_the_page():
    assert "`differing` is some of the rows that differ, five at most of each side: " + ", ".join(
        f"`{name}`" for name in fields(DifferingRow)
    ).replace(", `other`", " and `other`") in " ".join(PAGE.read_text().split())


def test_the_keys_of_looks_are_those_of_the_page(served_by_command):
    (listed,), (told,) = served_by_command("list"), served_by_command("status")
    assert (documented("list"), documented("status")) == ([*listed], [*told])


@pytest.fixture
def served_by_command(tmp_path):
    """What a command prints of a generation that serves."""
    from typer.testing import CliRunner

    from factfold.cli.entry import application
    from projections.tablestore.sqlite import SqliteTableStore
    from tests.conformance.ticket_batches import served

    store = SqliteTableStore(tmp_path / "views.db")
    store.prepare()
    served(store)
    store.close()

    def run(command):
        told = CliRunner().invoke(
            application(), ["projections", command, "--json", "--views-url", f"sqlite:///{store.path}"]
        )
        return json.loads(told.stdout)

    return run
