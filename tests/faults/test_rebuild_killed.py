"""A rebuild is killed with -9, and the next one goes on from what it had committed.

On the embedded road. FACTFOLD_KILLS sets at how many of four points, one after the other.
"""

from __future__ import annotations

import os

import pytest
import sqlalchemy as sa

from eventstore import Dispatcher
from projections import rebuild, verify
from tests.conformance.kiosk import KioskHistory
from tests.conformance.roads import embedded_road
from tests.faults.command_process import CommandProcess
from tests.faults.rebuild_process import GROUP
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
POINTS = ("customers", "views", "index", "serve")  # each behind the one before it
MODULE = "tests.faults.rebuild_process"


@pytest.fixture
def road(spark, tmp_path):
    with embedded_road(spark, tmp_path) as road:
        yield road


def loaded(road):
    """The tables and views of the unfinished generation that are noted as complete."""
    found = road.environment.store.states(GROUP.name, "building", "built")
    return {*found[0].built["tables"], *found[0].built["views"]} if found else set()


@pytest.mark.faults
def test_a_killed_rebuild_goes_on_from_what_it_had_committed(road, tmp_path):
    history = KioskHistory(Dispatcher(road.store), road.store.engine, seed=4)
    history.steps(60)
    for point in POINTS[:KILLS]:
        settings = {
            "FACTFOLD_VIEWS_URL": f"sqlite:///{road.environment.store.path}",
            "FACTFOLD_STANDS_STILL_AT": point,
        }
        command = ["projections", "rebuild", f"{MODULE}:GROUP", "--json"]
        process = CommandProcess(command, settings, tmp_path / f"{point}.log", module=MODULE)
        wait_until(lambda p=process: "standing still" in p.said, alive=process.require_alive, what="the point")
        if point == "customers":
            wait_until(lambda: loaded(road) == {"orders"}, what=lambda: f"orders alone in {loaded(road)}")
        process.kill()
    history.steps(10)
    report = rebuild(road.environment, GROUP)
    assert (report.resumed, report.generation, report.serves) == (True, 1, True)
    with road.environment.store.looking() as connection:
        found = dict(map(tuple, connection.execute(sa.text("SELECT order_id, name FROM buyers"))))
    names = {identity: row["name"] for identity, row in history.customers.items()}
    bought = {order: row["customer_id"] for order, row in history.orders.items()}
    assert found == {order: names[customer] for order, customer in bought.items() if customer in names}
    assert verify(road.environment, GROUP)["buyers"].equal
