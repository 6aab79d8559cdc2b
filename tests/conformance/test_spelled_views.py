"""SQL in any spelling, joined and grouped in one SELECT, through histories with kills: live = rebuilt = DuckDB."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections import Environment, open_runner, rebuild, verify
from projections.errors import KeyNotUnique
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.generated_views import histories
from tests.conformance.killed_batches import EXAMPLES, ROWS_STAY, carry_in, in_a_file, in_postgresql, some, write
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.spelled_views import spelled_worlds
from tests.conformance.view_oracle import assert_views_are_right

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]
SOME = some(8)


def live_through(store, world, history, columns):
    """Every batch, the killed ones again, each compared with DuckDB's answer to the text as it was written."""
    log = MemoryLog()
    batches = RelationalBatches(store, log, world.group, world.sql, columns)
    check = partial(assert_views_are_right, store, log, world.group, world.written, world.named)
    carry_in(batches, history, partial(write, ChangeWriter(log), world.tables), check)


def in_a_world(spark, store, data):
    world = data.draw(spelled_worlds())
    live_through(store, world, data.draw(histories(world)), view_columns(spark, world.group))


@given(data=st.data())
@SOME
def test_any_spelling_is_right_after_any_batch(spark, tmp_path, data):
    with in_a_file(tmp_path) as store:
        in_a_world(spark, store, data)


@given(data=st.data())
@settings(SOME, max_examples=max(2, EXAMPLES // 10))
def test_any_spelling_is_right_in_postgresql_too(spark, database, data):
    with in_postgresql(database()) as store:
        in_a_world(spark, store, data)


@given(data=st.data())
@settings(SOME, max_examples=max(2, EXAMPLES // 20))
def test_spark_keeps_any_spelling_as_it_would_rebuild_it(spark, tmp_path, data):
    world = data.draw(spelled_worlds())
    with in_a_file(tmp_path) as store:
        environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        rebuild(environment, world.group)
        changes = ChangeWriter(environment.log)
        for number, batch in enumerate(data.draw(histories(world))):
            write(changes, world.tables, batch)
            with open_runner(environment, world.group) as runner:
                runner.catch_up()
            after = f"batch {number}"
            assert_views_are_right(store, environment.log, world.group, world.written, world.named, after=after)
        verdicts = verify(environment, world.group)
        assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()
        rebuild(environment, world.group)
        verdicts = verify(environment, world.group)
        assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()


@given(data=st.data())
@settings(SOME, max_examples=60)
def long_enough_to_see_a_fault(spark, folder, data):
    """As many worlds as it takes: it ends with the first that is wrong."""
    with in_a_file(folder) as store:
        in_a_world(spark, store, data)


def test_a_planted_fault_shows(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(*ROWS_STAY)
    with pytest.raises((AssertionError, KeyNotUnique)):
        long_enough_to_see_a_fault(spark, tmp_path)
