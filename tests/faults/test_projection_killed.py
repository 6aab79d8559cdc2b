"""T1, short form: the projection process is killed with -9 in the middle of the flights, and the view is still right.

FACTFOLD_KILLS sets how often (1 in make test, 5 in make faults), FACTFOLD_SEED when; both are printed. The checker is
pandas over the source tables; the planted fault shows that it would see progress saved apart from its effects.
"""

from __future__ import annotations

import os
import random
import sys

import pandas as pd
import pytest
import sqlalchemy as sa

from factfold.stack import LocalStack
from projections import Environment, open_runner, verify
from projections.digest import digest_rows
from projections.spark.session import small_batch_session
from projections.spark.view_functions import view_columns
from projections.tablestore import runs
from projections.tablestore.arrow import arrow_schema
from projections.tablestore.postgres import PostgresTableStore
from sample_app.flights.corrections import Corrections
from sample_app.flights.demo import write_tables
from sample_app.flights.flight import Flight
from sample_app.flights.model import Base
from sample_app.flights.oracle import as_arrow, expected_details
from sample_app.flights.source import appends, read_flights
from sample_app.flights.view import flight_views
from sample_app.road import Road, lay_road
from tests.faults.projection_process import ProjectionProcess

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
FLIGHTS = 1_000 * (KILLS + 2)
GROUP = "sample_app.flights.view:flight_views"


@pytest.fixture(scope="module")
def road():
    with LocalStack(f"killed-{os.getpid()}", ephemeral=True) as servers:
        road = lay_road(servers.info, "flights", aggregates=[Flight], tables=Base.metadata)
        write_tables(road)
        yield road
        road.engine.dispose()


@pytest.fixture
def environment(road, spark):
    store = PostgresTableStore(road.views_url)
    yield Environment(spark, small_batch_session(spark), store, road.settings)
    store.close()


class Traffic:
    """Appends the flights in parts, corrections after each."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._flights = read_flights(FLIGHTS)
        self._sent = 0
        self.corrections = Corrections(road, list(self._flights["flight_id"][:1_000]), seed=SEED)

    def send(self, count: int, *, correct: bool = True) -> None:
        part = self._flights.iloc[self._sent : self._sent + count]
        for batch in appends(part, size=100):
            self._road.store.append_batch(batch)
        self._sent += count
        if correct:
            self.corrections.round(moves=5)

    def expected(self) -> pd.DataFrame:
        sent = self._flights.iloc[: self._sent]
        return expected_details(sent, self.corrections.reassigned, self._road.engine)


def assert_view_is(environment: Environment, expected: pd.DataFrame) -> None:
    verdict = verify(environment, flight_views)["flight_details"]
    columns = view_columns(environment.spark, flight_views)["flight_details"]
    assert (verdict.digest, verdict.rows) == digest_rows(as_arrow(expected, arrow_schema(columns)))
    assert verdict.equal


def caught_up(environment: Environment, road: Road) -> None:
    road.wait_until_captured()
    with open_runner(environment, flight_views) as runner:
        runner.catch_up()


def test_a_killed_run_goes_on_where_it_stood_and_the_view_equals_pandas(road, environment, tmp_path, capsys):
    with capsys.disabled():
        sys.stdout.write(f"\nreplay: FACTFOLD_KILLS={KILLS} FACTFOLD_SEED={SEED} pytest tests/faults\n")
    moment, traffic = random.Random(SEED), Traffic(road)
    traffic.send(1_000)
    for kill in range(KILLS + 1):
        process = ProjectionProcess(road, GROUP, tmp_path / "runner.log")
        process.wait_for(1)  # it has built the views if there were none, and follows
        traffic.send(500)
        process.wait_for(moment.randint(1, 2) if kill < KILLS else 1)
        traffic.send(500, correct=False)
        if kill < KILLS:
            process.kill()  # a batch is on its way: what was just sent takes it longer than we do
        else:
            assert process.stop() == 0
    caught_up(environment, road)
    assert_view_is(environment, traffic.expected())


def test_the_planted_fault_is_seen_progress_that_is_saved_before_its_effects(road, environment, monkeypatch):
    """A mutant of the commit saves its progress in a transaction of its own; the crash then loses a batch."""

    def mutant(connection, layout, run, *, start, end, mark):
        with environment.store.transaction() as apart:
            runs.advance(apart, run, start, end)
        raise KeyboardInterrupt

    with environment.store.transaction() as connection:
        before = connection.scalar(sa.text("SELECT count(*) FROM flight_details"))
    late = read_flights(FLIGHTS + 300).iloc[FLIGHTS:]
    for batch in appends(late):
        road.store.append_batch(batch)
    road.wait_until_captured()
    with monkeypatch.context() as patched, open_runner(environment, flight_views) as runner:
        patched.setattr("projections.spark.incremental.commit_batch", mutant)
        with pytest.raises(KeyboardInterrupt):
            runner.run_once()
    caught_up(environment, road)
    verdict = verify(environment, flight_views)["flight_details"]
    assert not verdict.equal
    assert verdict.rows == before < verdict.recomputed_rows
