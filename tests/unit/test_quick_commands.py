"""Commands that start no Spark, and the JSON that they print."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import resource
import subprocess
import sys
from contextlib import closing
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
from projections.stores.comparison import DifferingRow
from projections.stores.sqlite import SqliteTableStore
from tests.commands import factfold, program

ROOT = Path(__file__).parents[2]
SECONDS = 3.0  # twice what is promised: other work on the machine counts in part
# Runs commands; of each it says how it ended, what it said of an error, and what of Spark was loaded then.
PROGRAM = """
import contextlib, io, json, sys
from factfold.cli import main
ends = []
for words in json.loads(sys.argv[1]):
    sys.argv, code = ["factfold", *words], 0
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    spark = sys.modules.get("pyspark")
    ends.append((code, said.getvalue(), spark is not None, spark is not None and bool(spark.SparkContext._gateway)))
print(json.dumps(ends))
"""
SHOP = "sample_app.views:shop_views"
COMMANDS = {
    "list": (["projections", "list"], 0, ""),
    "status": (["projections", "status"], 0, ""),
    "status of an unknown group": (["projections", "status", "shop"], 1, "group"),
    "verify of an unbuilt view": (["projections", "verify", SHOP], 1, "has not been built"),
    "a wrong group": (["projections", "verify", "sample_app.views:shop"], 1, "shop_views"),
    "a wrong module": (["projections", "rebuild", "shop_app.views:shop"], 1, "there is no module"),
    "a module without a group": (["projections", "run", "sample_app.orders:Order"], 1, "no projection group"),
    "wrong branches": (["branches", "status", "sample_app.payments:branch"], 1, "it has "),
}


@pytest.fixture
def views(tmp_path):
    """An SQLite file that may hold views, and has none."""
    with closing(SqliteTableStore(tmp_path / "shop.db")) as store:
        store.prepare()
    return f"sqlite:///{tmp_path / 'shop.db'}"


def run(views, *names):
    """Run commands in one process that has no Java; give how each ended, and the seconds of processor time."""
    environment = {**os.environ, "PATH": "/nowhere", "PYTHONPATH": str(ROOT), "FACTFOLD_VIEWS_URL": views,
                   "FACTFOLD_CHECKPOINTS": "nowhere"}  # fmt: skip
    environment.pop("JAVA_HOME", None)
    given = json.dumps([COMMANDS[name][0] for name in names])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    ends = dict(zip(names, json.loads(done.stdout), strict=True))
    return ends, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_command_that_needs_no_spark_ends_without_it(views):
    """A module of views may load PySpark. Java is started by nothing."""
    ends, _ = run(views, *COMMANDS)
    wrong = {
        name: end
        for name, end in ends.items()
        if (code := COMMANDS[name][1]) != end[0] or COMMANDS[name][2] not in end[1] or end[3] or (code == 0 and end[2])
    }
    assert wrong == {}


@pytest.mark.parametrize("name", ["list", "verify of an unbuilt view"])
def test_a_command_without_spark_is_quick(views, name):
    _, seconds = run(views, name)
    assert seconds < SECONDS, f"{seconds:.2f} s of processor time"


# ---- the page for programs names every key that the commands print


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
