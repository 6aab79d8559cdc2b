"""T1 on the embedded road, short form: the process that runs the kiosk's view from one SQLite file is killed with -9.

FACTFOLD_KILLS and FACTFOLD_SEED as in test_projection_killed.py.
"""

from __future__ import annotations

import os
import random

import pytest

from eventstore import Dispatcher
from projections import open_runner, verify
from projections.spark.views.view_functions import view_columns
from tests.conformance.kiosk import GROUP, KioskHistory
from tests.conformance.roads import embedded_road
from tests.faults.command_process import CommandProcess

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))


@pytest.fixture
def road(spark, tmp_path):
    with embedded_road(spark, tmp_path) as road:
        yield road


@pytest.mark.faults  # two starts of Spark; test_sqlite_killed.py is quicker
def test_a_killed_run_goes_on_where_it_stood_and_the_view_equals_the_history(road, tmp_path, say):
    say(f"replay: FACTFOLD_KILLS={KILLS} FACTFOLD_SEED={SEED} pytest tests/faults")
    moment = random.Random(SEED)
    history = KioskHistory(Dispatcher(road.store), road.store.engine, seed=SEED)
    history.steps(50)
    for _ in range(KILLS):
        settings = {"FACTFOLD_VIEWS_URL": f"sqlite:///{road.environment.store.path}"}
        command = ["projections", "run", "tests.conformance.kiosk:GROUP", "--json"]
        process = CommandProcess(command, settings, tmp_path / "runner.log")
        process.wait_for_lines(1)  # it has built the view if there was none, and follows
        for _ in range(moment.randint(1, 2)):  # one batch takes all that has happened
            history.steps(30)
            process.wait_for_lines(1)
        history.steps(30)
        process.kill()  # a batch is on its way: what has just happened takes it longer than us
    with open_runner(road.environment, GROUP) as runner:
        runner.catch_up()
    verdicts = verify(road.environment, GROUP)
    for view, columns in view_columns(road.environment.spark, GROUP).items():
        assert (verdicts[view].digest, verdicts[view].rows) == history.digest(view, columns)
        assert verdicts[view].equal
