"""T1, short form: the projection process is killed with -9 in the middle of the flights; view and topic stay right.

FACTFOLD_KILLS sets how often (5 in make faults, 50 in make faults-full), FACTFOLD_SEED when, and FACTFOLD_FLIGHTS how
many flights come between two kills; all are printed. Each kill falls into a batch that has begun; how long the next
process took to its first batch is printed. The checker is pandas over the source tables.
"""

from __future__ import annotations

import os
import random

import pytest
import sqlalchemy as sa

from projections import Environment
from projections.spark.reading.kafka_source import KafkaLog
from projections.spark.session import small_batch_session
from projections.stores.postgres import PostgresTableStore
from sample_app.road import Road
from tests.faults.killed_flights import KilledRuns, Traffic, assert_view_is, caught_up, road_of_its_own
from tests.faults.published_flights import assert_topic_is_the_view, flight_views

KILLS = int(os.environ.get("FACTFOLD_KILLS", "5"))
SEED = int(os.environ.get("FACTFOLD_SEED", "2013"))
PART = int(os.environ.get("FACTFOLD_FLIGHTS", "1000"))
FLIGHTS = PART * (KILLS + 2)
GROUP = "tests.faults.published_flights:flight_views"
SERVING = "factfold_flights_1"  # the first generation, which the first process builds


@pytest.fixture(scope="module")
def road():
    with road_of_its_own(f"killed-{os.getpid()}") as road:
        yield road


@pytest.fixture
def environment(road, spark):
    store = PostgresTableStore(road.views_url)
    yield Environment(spark, small_batch_session(spark), store, KafkaLog(road.settings))
    store.close()


def batch_at_hand(road: Road) -> str | None:
    """The mark of the batch whose changes the working tables hold; None while there are none."""
    engine = sa.create_engine(road.views_url)
    with engine.connect() as connection:
        present = connection.scalar(sa.text(f"SELECT to_regclass('{SERVING}.batch') IS NOT NULL"))
        mark = connection.scalar(sa.text(f"SELECT id FROM {SERVING}.batch")) if present else None
    engine.dispose()
    return mark


@pytest.mark.faults
def test_a_killed_run_goes_on_where_it_stood_and_the_view_equals_pandas(road, environment, tmp_path, say):
    chosen = f"FACTFOLD_KILLS={KILLS} FACTFOLD_FLIGHTS={PART} FACTFOLD_SEED={SEED}"
    traffic = Traffic(road, FLIGHTS, seed=SEED)
    settings = {
        "FACTFOLD_VIEWS_URL": road.views_url,
        "FACTFOLD_KAFKA__BOOTSTRAP_SERVERS": road.settings.kafka.bootstrap_servers,
    }

    def more():
        before = batch_at_hand(road)
        traffic.send(PART)
        return lambda: batch_at_hand(road) not in (None, before)

    traffic.send(PART)
    killed = KilledRuns(environment, flight_views, GROUP, settings, tmp_path / "runner.log")
    killed.kill_amid_batches(KILLS, more, random.Random(SEED), within=0.5)
    assert killed.start().stop() == 0
    caught_up(environment, flight_views, road)
    assert_view_is(environment, flight_views, traffic.expected())
    assert_topic_is_the_view(environment)
    say(f"replay: {chosen} pytest tests/faults\n{killed.told()}")
    killed.require_resumed()
