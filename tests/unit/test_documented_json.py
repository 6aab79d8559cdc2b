"""The page for programs names every key that the commands print."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from cdc.comparing.report import TableComparison
from docs.commands_page import commands
from factfold.cli.cdc.compare import as_plain
from factfold.cli.show import Out
from factfold.cli.views.projections import as_plain as views_as_plain
from projections import BatchReport, ViewVerdict
from projections.lifecycle.cutover import ViewComparison
from projections.lifecycle.rebuild import RebuildReport
from projections.stores.roles import DifferingRow
from tests.commands import factfold, program

PAGE = Path(__file__).parents[2] / "docs/reference/json-output.md"


def documented(command):
    """The keys in a command's line of the table: code outside of brackets."""
    table = PAGE.read_text().partition("| command | JSON |")[2]
    (line,) = [found for found in table.splitlines() if found.startswith(f"| `{command}`")]
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
        ("cdc compare", list(as_plain(TableComparison("t", "s", ()), show=0))),
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
    from projections.stores.sqlite import SqliteTableStore
    from tests.conformance.ticket_batches import served

    store = SqliteTableStore(tmp_path / "views.db")
    store.prepare()
    served(store)
    store.close()

    def run(command):
        told = factfold("projections", command, "--json", "--views-url", f"sqlite:///{store.path}")
        return json.loads(told.stdout)

    return run


def test_an_exit_code_has_one_meaning_and_the_page_has_each_command_that_finds_something():
    said = {" ".join(words): command.help or "" for words, command in commands(program())}
    codes = {name: set(re.findall(r"[Ee]xit code (\d)", text)) for name, text in said.items()}
    assert set().union(*codes.values()) <= {"0", "1", "3"}  # 2 is the parser's, for every command
    finding = {name for name, text in said.items() if re.search(r"[Ee]xit code (3|0 if [^.]*, 3 if not)", text)}
    table = PAGE.read_text().partition("| command | exit code 3 if |")[2].partition("\n\n")[0]
    listed = re.findall(r"`([a-z]+(?: [a-z]+)?)`", "\n".join(line.split("|")[1] for line in table.splitlines()[2:]))
    assert sorted(listed) == sorted(finding)


def test_rows_are_json_whatever_is_in_them(capsys):
    row = {
        "price": Decimal("1.50"), "at": datetime(2026, 2, 3, 4, 5, 6, 70, UTC), "day": date(2026, 2, 3),
        "raw": b"\xfe\x00",
        "share": math.nan, "least": -math.inf, "most": math.inf, "none": None, "parts": [{"x": math.nan}], 7: "seven",
    }  # fmt: skip
    compared = ViewComparison(("id",), 1, 1, "a", "b", (DifferingRow({"id": 1}, row, None),))
    Out(as_json=True).show(views_as_plain({"offers": compared}), "")
    found = json.loads(capsys.readouterr().out, parse_constant=_refused)["offers"]["differing"][0]["one"]
    assert found == {
        "price": "1.50", "at": "2026-02-03 04:05:06.000070+00:00", "day": "2026-02-03", "raw": "fe00", "share": "NaN",
        "least": "-Infinity", "most": "Infinity", "none": None, "parts": [{"x": "NaN"}], "7": "seven",
    }  # fmt: skip


def _refused(constant):
    raise AssertionError(f"{constant} is no JSON")
