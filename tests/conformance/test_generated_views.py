"""Views nobody wrote, through histories nobody wrote, cut and killed anywhere: live = rebuilt = DuckDB."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from projections import Environment, open_runner, rebuild, verify
from projections.errors import KeyNotUnique
from projections.spark.live import incremental
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores import dialects, staging
from projections.stores.commit import commit_batch
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.generated_views import histories, worlds
from tests.conformance.killed_batches import (
    EXAMPLES,
    ROWS_STAY,
    Killed,
    few,
    in_a_file,
    in_postgresql,
    live_as_duckdb_says,
    some,
    until_a_fault_shows,
    write,
)
from tests.conformance.view_oracle import assert_views_are_right

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]
SOME = some(8)


def live_through(store, world, history, columns):
    """Every batch, the killed ones again, each compared with DuckDB."""
    of_world = {"group": world.group, "sql": world.sql, "named": world.named, "tables": world.tables}
    live_as_duckdb_says(store, history, columns, **of_world)


LIVE_APPLY = incremental.LiveBatches.apply


def _begun(connection, layout):
    """A batch that begins with what the last attempt staged."""
    dialects.empty(connection, [layout.marker])
    connection.execute(sa.insert(layout.marker).values(id="mark"))
    return "mark"


MUTANTS = {
    "rows that are gone stay": ROWS_STAY,
    "what a killed batch left is kept": (staging, "begin", _begun),
}


@given(data=st.data())
@SOME
def test_any_view_is_right_after_any_batch(spark, tmp_path, data):
    in_a_world(spark, tmp_path, data)


def in_a_world(spark, folder, data, *, rich=False):
    world = data.draw(worlds(rich=rich))
    history = data.draw(histories(world))
    with in_a_file(folder) as store:
        live_through(store, world, history, view_columns(spark, world.group))


@given(data=st.data())
@few(SOME)
def test_any_view_is_right_in_postgresql_too(spark, database, data):
    world = data.draw(worlds(rich=True))
    history = data.draw(histories(world))
    with in_postgresql(database()) as store:
        live_through(store, world, history, view_columns(spark, world.group))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_fault_shows(mutant, spark, tmp_path, monkeypatch):
    monkeypatch.setattr(*MUTANTS[mutant])
    with pytest.raises((AssertionError, KeyNotUnique)):
        until_a_fault_shows(lambda data: in_a_world(spark, tmp_path, data, rich=True), st.data(), SOME, start=6)


@contextmanager
def killed_runner(step):
    """What Spark's batch ends in: before its transaction, in it, behind it; no transaction is in the steps before."""

    def commit(*given, **named):
        if step in ("staged", "kept"):
            raise Killed
        commit_batch(*given, **named)
        if step == "committing":
            raise Killed

    def apply(*given, **named):
        report = LIVE_APPLY(*given, **named)
        if step == "committed":
            raise Killed
        return report

    with patch.object(incremental, "commit_batch", commit), patch.object(incremental.LiveBatches, "apply", apply):
        yield


def run_through(environment, world, history, changes):
    """Every batch by a runner; the one that follows a killed one applies what it left, and what is new."""
    left = list(history)
    while left:
        with suppress(Killed), open_runner(environment, world.group) as runner:
            while left:
                batch = left.pop(0)
                write(changes, world.tables, batch)
                with killed_runner(batch.killed_at):
                    runner.catch_up()
    with open_runner(environment, world.group) as runner:
        runner.catch_up()


@given(data=st.data())
@settings(SOME, max_examples=max(2, EXAMPLES // 20))
def test_spark_keeps_any_view_as_it_would_rebuild_it(spark, tmp_path, data):
    world = data.draw(worlds(rich=True))
    history = data.draw(histories(world))
    with in_a_file(tmp_path) as store:
        environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        rebuild(environment, world.group)
        run_through(environment, world, history, ChangeWriter(environment.log))
        assert_views_are_right(store, environment.log, world.group, world.sql, world.named, after="the last batch")
        verdicts = verify(environment, world.group)
    assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()
