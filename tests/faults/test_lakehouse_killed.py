"""T1 on Delta Lake: the process that keeps the flights' view in a folder is killed with -9; the view stays right.

FACTFOLD_KILLS, at most 20 of them, FACTFOLD_FLIGHTS and FACTFOLD_SEED as in test_projection_killed.py; a kill comes at
any moment of a batch's seconds, before its files, among them, or at its commit. All tables are written anew then; a
quarter as many kills come while they are merged into, as large ones are, and find some of them ahead of the ledger. The
planted fault, a commit that is not the last write, is in test_lakehouse.py. In make test, tests/spark/test_lakehouse.py
has a kill before the commit, in process.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from projections import Environment
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.reading.kafka_source import KafkaLog
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from sample_app.flights.view import flight_views
from tests.faults.killed_flights import KilledRuns, Traffic, assert_view_is, caught_up, is_caught_up, road_of_its_own

KILLS = min(int(os.environ.get("FACTFOLD_KILLS", "5")), 20)  # a batch takes ten times what it takes in a database
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
PART = int(os.environ.get("FACTFOLD_FLIGHTS", "1000"))
MERGING = max(2, KILLS // 4)
CHOSEN = f"FACTFOLD_KILLS={KILLS} FACTFOLD_FLIGHTS={PART} FACTFOLD_SEED={SEED}"
GROUP = "sample_app.flights.view:flight_views"
BATCH = 16.0  # seconds, about, of the second one of a process, whose last third writes
pytestmark = pytest.mark.faults  # starts of Spark, batches of seconds


@pytest.fixture(scope="module")
def road():
    with road_of_its_own(f"lake-{os.getpid()}") as road:
        yield road


@pytest.fixture(scope="module")
def traffic(road):
    """What the tests send, one behind the other."""
    return Traffic(road, PART * (KILLS + MERGING + 4), seed=SEED)


@pytest.fixture
def killed(road, spark, tmp_path):
    """The runner of a lake of its own."""
    store = DeltaTableStore(spark, f"delta:{tmp_path / 'lake'}")
    environment = Environment(spark, small_batch_session(spark), store, KafkaLog(road.settings))
    settings = {
        "FACTFOLD_VIEWS_URL": store.place,
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": road.settings.kafka.bootstrap_servers,
    }
    return KilledRuns(environment, flight_views, GROUP, settings, tmp_path / "runner.log")


@pytest.mark.timeout(max(900, 180 * KILLS))
def test_a_killed_run_goes_on_where_it_stood_and_the_view_equals_pandas(road, traffic, killed, capsys):
    def more():
        traffic.send(PART)
        return lambda: not is_caught_up(killed.environment, flight_views)

    go_on_though_killed(road, traffic, killed, KILLS, more, within=BATCH)
    with capsys.disabled():
        sys.stdout.write(f"\nreplay: {CHOSEN} pytest tests/faults/test_lakehouse_killed.py\n{killed.told()}\n")
    killed.require_resumed()


@pytest.mark.timeout(max(900, 180 * MERGING))
def test_tables_that_are_ahead_of_the_ledger_are_taken_back_and_the_view_equals_pandas(road, traffic, killed, capsys):
    killed.module = "tests.faults.merging_lake"

    def more():
        run, tables = serving_tables(killed.environment)
        traffic.send(PART)
        return lambda: is_torn(killed.environment, run, tables)

    go_on_though_killed(road, traffic, killed, MERGING, more, within=0.3)
    torn = taken_back(killed.environment)
    with capsys.disabled():
        sys.stdout.write(f"\ntables taken back after {MERGING} kills: {torn}\n")
    assert torn >= MERGING // 2


def go_on_though_killed(road, traffic, killed, kills, more, *, within):
    """Kill and start again, bring the last one to an end, and look at the view."""
    traffic.send(PART)
    killed.kill_amid_batches(kills, more, random.Random(SEED), within=within)
    assert killed.start().stop() == 0
    caught_up(killed.environment, flight_views, road)
    assert_view_is(killed.environment, flight_views, traffic.expected())


def is_torn(environment, run, tables):
    """Whether a batch has written some of its tables, and not yet the ledger: it is so for a second or two."""
    logs = {name: Path(table.path.removeprefix("file:"), "_delta_log") for name, table in tables.items()}
    newest = {name: max(int(commit.stem) for commit in log.glob("*.json")) for name, log in logs.items()}
    counted = environment.store.entry(run).tables
    return any(version > counted[name] for name, version in newest.items())


def taken_back(environment):
    """How often a table that is merged into was made what the ledger says."""
    _, tables = serving_tables(environment)
    histories = [environment.spark.sql(f"DESCRIBE HISTORY delta.`{table.path}`") for table in tables.values()]
    return sum(history.where("operation = 'RESTORE'").count() for history in histories)


def serving_tables(environment):
    run, _ = environment.store.serving(flight_views, view_columns(environment.spark, flight_views))
    return run, {name: environment.store.table(run, name) for name in environment.store.entry(run).tables}
