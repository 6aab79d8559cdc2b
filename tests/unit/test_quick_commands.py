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
# Runs a command, and says at its end what it had loaded.
COMMAND = """
import atexit, json, sys
from factfold.cli import main
seen = lambda: sys.stderr.write("LOADED " + json.dumps([m for m in ("pyspark", "py4j") if m in sys.modules]))
atexit.register(seen)
main()
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


def run(arguments, views):
    """A command in a process of its own, the seconds of processor time it took, and what of Spark it had loaded."""
    # Without Java whatever starts Spark fails.
    without_java = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **without_java, "FACTFOLD_VIEWS_URL": views, "FACTFOLD_CHECKPOINTS": "nowhere"}
    environment.pop("JAVA_HOME", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said, _, loaded = done.stderr.rpartition("LOADED ")
    return done, said, json.loads(loaded), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(("arguments", "code", "words"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_without_spark_is_quick(views, arguments, code, words):
    done, said, loaded, seconds = run(arguments, views)
    assert (done.returncode, words in said) == (code, True), said
    assert loaded == []
    assert seconds < SECONDS, f"{seconds:.2f} s of processor time"
