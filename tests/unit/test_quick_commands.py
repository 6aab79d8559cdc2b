"""Commands that need no Spark answer before a person looks up: no Java, no PySpark, and about a second of work."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from projections.stores.sqlite import SqliteTableStore

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
