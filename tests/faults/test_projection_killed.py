"""T1, short form: the projection process is killed with -9 in the middle of the flights; view and topic stay right.

FACTFOLD_KILLS sets how often (1 in make test, 5 in make faults, 50 in make faults-full), FACTFOLD_SEED when, and
FACTFOLD_FLIGHTS how many flights come between two kills; all are printed. Each kill falls into a batch that has begun.
The checker is pandas over the source tables; the planted fault shows that it would see progress saved apart from its
effects.
"""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import closing

import pandas as pd
import pytest
import sqlalchemy as sa

from eventstore.kafka.admin import end_offsets
from factfold.stack import LocalStack
from projections import Environment, open_runner, rebuild, verify
from projections.digest import digest_rows
from projections.runner import reached
from projections.spark.kafka_source import KafkaLog
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
from sample_app.road import Road, lay_road
from tests.faults.projection_process import ProjectionProcess
from tests.faults.published_flights import assert_topic_is_the_view, flight_views
from tests.waiting import wait_until

KILLS = int(os.environ.get("FACTFOLD_KILLS", "1"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
PART = int(os.environ.get("FACTFOLD_FLIGHTS", "1000"))
FLIGHTS = PART * (KILLS + 2)
GROUP = "tests.faults.published_flights:flight_views"
SERVING = "factfold_flights_1"  # the first generation, which the first process builds


@pytest.fixture(scope="module")
def road():
    """On servers of its own: those of the session may hold the flights of another test."""
    with LocalStack(f"killed-{os.getpid()}", ephemeral=True) as servers:
        with closing(lay_road(servers.info, "flights", aggregates=[Flight], tables=Base.metadata)) as road:
            write_tables(road)
            yield road


@pytest.fixture
def environment(road, spark):
    store = PostgresTableStore(road.views_url)
    yield Environment(spark, small_batch_session(spark), store, KafkaLog(road.settings))
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


def is_caught_up(environment: Environment, road: Road) -> bool:
    run, _ = environment.store.serving(flight_views, view_columns(environment.spark, flight_views))
    return reached(environment.store.progress(run), end_offsets(road.settings, list(flight_views.topics)))


def caught_up(environment: Environment, road: Road) -> None:
    road.wait_until_captured()
    with open_runner(environment, flight_views) as runner:
        runner.catch_up()


def batch_at_hand(road: Road) -> str | None:
    """The mark of the batch whose changes the working tables hold; None while there are none."""
    engine = sa.create_engine(road.views_url)
    with engine.connect() as connection:
        present = connection.scalar(sa.text(f"SELECT to_regclass('{SERVING}.batch') IS NOT NULL"))
        mark = connection.scalar(sa.text(f"SELECT id FROM {SERVING}.batch")) if present else None
    engine.dispose()
    return mark


def test_a_killed_run_goes_on_where_it_stood_and_the_view_equals_pandas(road, environment, tmp_path, capsys):
    with capsys.disabled():
        chosen = f"FACTFOLD_KILLS={KILLS} FACTFOLD_FLIGHTS={PART} FACTFOLD_SEED={SEED}"
        sys.stdout.write(f"\nreplay: {chosen} pytest tests/faults\n")
    moment, traffic, in_flight = random.Random(SEED), Traffic(road), 0
    settings = {
        "FACTFOLD_VIEWS_URL": road.views_url,
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": road.settings.kafka.bootstrap_servers,
    }
    traffic.send(PART)
    for _ in range(KILLS):
        process = ProjectionProcess(settings, GROUP, tmp_path / "runner.log")
        process.wait_for(1)  # it has built the views if there were none, and follows
        before = batch_at_hand(road)
        traffic.send(PART)
        wait_until(lambda seen=before: batch_at_hand(road) not in (None, seen), what="a batch", pause=0.01)
        time.sleep(moment.uniform(0, 0.5))
        process.kill()
        in_flight += not is_caught_up(environment, road)
    assert in_flight, "no kill fell into a batch: send more, or kill sooner"
    if KILLS > 1:  # one more start of a JVM: make faults alone has the time for it
        process = ProjectionProcess(settings, GROUP, tmp_path / "runner.log")
        process.wait_for(1)
        assert process.stop() == 0
    caught_up(environment, road)
    assert_view_is(environment, traffic.expected())
    assert_topic_is_the_view(environment)


def test_the_planted_fault_is_seen_progress_that_is_saved_before_its_effects(road, environment, monkeypatch):
    """A mutant of the commit saves its progress in a transaction of its own; the crash then loses a batch."""

    def mutant(connection, layout, run, *, start, end, mark):
        with environment.store.transaction() as apart:
            runs.advance(apart, run, start, end)
        raise KeyboardInterrupt

    rebuild(environment, flight_views)
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
