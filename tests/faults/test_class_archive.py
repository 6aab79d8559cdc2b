"""The archive of Spark's classes: made once, mapped by later starts, and no harm to a start where it is damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.faults  # four starts of Spark

# The environment of these processes is a folder of the test's: the archive of the one that runs it stays as it is.
PREPARE = """
import sys
sys.prefix = sys.argv[1]
from factfold.cli.entry import application
application()(["prepare", "--json"])
"""
START = """
import sys
sys.prefix = sys.argv[1]
from factfold.stack import delta_jars, spark_jars
from projections.spark.session import class_archive, driver_options, open_session
loads = f"{driver_options(mapped=class_archive())} -Xlog:class+load:file={sys.argv[2]}"
spark = open_session([*spark_jars(), *delta_jars()], config={"spark.driver.extraJavaOptions": loads})
print(spark.range(7).count())
"""


def python(code, *arguments):
    """As users start it: the tests' own processes have other options."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3_000:]
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("environment")
    (told,) = python(PREPARE, folder)
    found = json.loads(told)
    archive = Path(found["archive"])
    assert archive == folder / "share" / "factfold" / f"spark-classes-{found['bytes']}.jsa"
    assert list(archive.parent.iterdir()) == [archive]
    return archive


def sources(log):
    """How many classes of Spark came from the archive, and how many from its jars."""
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    return [sum(source in line for line in loaded) for source in ("source: shared objects file (top)", "source: file:")]


def test_a_start_maps_the_classes_that_an_earlier_one_has_loaded(archive, tmp_path):
    assert python(START, archive.parents[2], tmp_path / "loads") == ["7"]
    shared, loaded = sources(tmp_path / "loads")
    assert shared > 20 * loaded


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:100_000], lambda whole: b"\0" * len(whole)], ids=["cut", "zeros"]
)
def test_a_damaged_archive_is_none_and_says_nothing_in_the_output(archive, tmp_path, damage):
    damaged = tmp_path / "share" / "factfold" / archive.name
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(damage(archive.read_bytes()))
    assert python(START, tmp_path, tmp_path / "loads") == ["7"]
    shared, loaded = sources(tmp_path / "loads")
    assert (shared, loaded > 1_000) == (0, True)
