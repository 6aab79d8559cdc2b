"""A rebuild is killed with -9, and the next one goes on from what it had committed.

On the embedded road. FACTFOLD_KILLS sets at how many points, one after the other: 1 in make test. The planted fault,
and the run that goes on beside, stand in tests/integration/test_rebuild_beside.py, where no JVM has to start for it.
"""

from __future__ import annotations

import os

import pytest

from eventstore import Dispatcher
from projections import rebuild, verify
from projections.spark.view_functions import view_columns
from tests.conformance.kiosk import GROUP
from tests.conformance.kiosk_history import KioskHistory
from tests.conformance.roads import embedded_road
from tests.faults.command_process import CommandProcess
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
POINTS = ("customers", "orders", "views", "index", "serve")
OTHERS = {"orders", "articles", "placed", "customer_versions"}  # the tables that stand beside customers


@pytest.fixture
def road(spark, tmp_path):
    with embedded_road(spark, tmp_path) as road:
        yield road


def loaded(road):
    """The tables and views of the unfinished generation that are noted as complete."""
    found = road.environment.store.states(GROUP.name, "building", "built")
    return set(found[0].built["rows"]) if found else set()


def test_a_killed_rebuild_goes_on_from_what_it_had_committed(road, tmp_path):
    history = KioskHistory(Dispatcher(road.store), road.store.engine, seed=4)
    history.steps(60)
    url = f"sqlite:///{road.environment.store.path}"
    for point in POINTS[:KILLS]:
        settings = {"FACTFOLD_VIEWS_URL": url, "FACTFOLD_STANDS_STILL_AT": point}
        command = ["projections", "rebuild", "tests.conformance.kiosk:GROUP", "--json"]
        process = CommandProcess(command, settings, tmp_path / f"{point}.log", module="tests.faults.rebuild_process")
        wait_until(lambda p=process: "standing still" in p.said, alive=process.require_alive, what="the point")
        if point == "customers":
            wait_until(lambda: loaded(road) == OTHERS, what=lambda: f"all but customers in {loaded(road)}")
        process.kill()
    report = rebuild(road.environment, GROUP)
    assert (report.resumed, report.generation, report.serves) == (True, 1, True)
    verdicts = verify(road.environment, GROUP)
    for view, columns in view_columns(road.environment.spark, GROUP).items():
        assert (verdicts[view].digest, verdicts[view].rows) == history.digest(view, columns)
        assert verdicts[view].equal
