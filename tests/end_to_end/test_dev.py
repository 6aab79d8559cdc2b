"""`factfold dev` in one SQLite file: Spark starts once, and each change of the code is built and compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventstore import NO_STREAM, Aggregate, SqlEventStore, event
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
VIEWS = """
from desk_orders import Order
from projections import ProjectionGroup, Table, on, view

orders = Table.from_events(Order, key="order_id", columns={"amount": on(Order.Placed).take("amount")})


@view(key="order_id")
def amounts(orders):
    return orders.select("order_id", "amount")


desk = ProjectionGroup("desk", [amounts])
"""
ORDERS = """
from eventstore import Aggregate, event


class Order(Aggregate):
    @event
    class Placed:
        amount: int
"""
CHANGED = VIEWS.replace('"amount")\n\n', '"amount", (orders.amount * 2).alias("twice"))\n\n')


class Order(Aggregate):
    @event
    class Placed:
        amount: int


class Dev:
    """The command in a folder, and what it has printed."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "dev.log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FACTFOLD_VIEWS_URL": "sqlite:///desk.db"}
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "factfold", "dev", "desk_views:desk"]
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    @property
    def said(self):
        return self.log.read_text()

    def wait_for(self, words, *, times=1):
        def alive():
            assert self.process.poll() is None, self.said

        wait_until(lambda: self.said.count(words) >= times, within=240, alive=alive, what=lambda: self.said)

    def turns(self):
        """The processes of the turns that run."""
        told = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
        lines = [line.split(maxsplit=2) for line in told.splitlines()]
        return [int(pid) for pid, parent, _ in lines if parent == str(self.process.pid) and "development.turn" in _]

    def rows(self):
        with closing(sa.create_engine(f"sqlite:///{self.folder / 'desk.db'}").connect()) as connection:
            return [tuple(row) for row in connection.exec_driver_sql("SELECT * FROM amounts")]


@pytest.fixture
def dev(tmp_path):
    (tmp_path / "desk_orders.py").write_text(ORDERS)
    (tmp_path / "desk_views.py").write_text(VIEWS)
    with closing(SqlEventStore(f"sqlite:///{tmp_path / 'desk.db'}")) as store:
        store.create_tables()
        store.append("order-1", [Order.Placed(amount=7)], expected=NO_STREAM)
    started = Dev(tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.send_signal(signal.SIGINT)
        started.process.wait(60)


@pytest.mark.timeout(600)  # what takes a minute on an idle machine has taken five on a busy one
def test_each_change_of_the_code_is_built_and_compared_while_spark_goes_on(dev):
    dev.wait_for("following")
    assert dev.rows() == [("1", 7)]

    (dev.folder / "desk_views.py").write_text(CHANGED)
    dev.wait_for("changed: amounts; raise the group's version before you release it")
    dev.wait_for("following", times=2)
    assert dev.rows() == [("1", 7, 14)]

    # A process that is killed leaves its Spark context in the JVM.
    (turn,) = dev.turns()
    os.kill(turn, signal.SIGKILL)
    (dev.folder / "desk_orders.py").write_text(ORDERS + "\nraise ValueError('half written')\n")
    dev.wait_for("ValueError: half written")
    (dev.folder / "desk_views.py").write_text(VIEWS)
    (dev.folder / "desk_orders.py").write_text(ORDERS)
    dev.wait_for("following", times=3)
    assert dev.rows() == [("1", 7)]

    assert dev.said.count("starting Spark, once") == 1
    assert dev.said.count("live = recomputed") == 3
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(60) == 0
