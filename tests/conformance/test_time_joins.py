"""Joins by time: what DuckDB makes of all rows, after any change in any order, cut and killed anywhere."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pyarrow as pa
import pytest

from projections import Environment, ProjectionGroup, open_runner, rebuild
from projections.spark.session import small_batch_session
from projections.spark.views.partials import call
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.followed_views import EXAMPLES, in_a_file
from tests.conformance.relational_batches import run
from tests.conformance.time_join_views import ASKED, NAMED, SQL, VIEWS, WORLD, clicks, searches
from tests.conformance.view_oracle import in_order, stored

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]


@pytest.fixture(scope="module")
def columns(spark):
    return WORLD.columns(spark)


# ---- the functions themselves


def many_worlds(count):
    """Rows of so many small worlds, each in sessions of its own: one job computes them all."""
    chance = random.Random(30)
    found = {"searches": [], "clicks": []}
    for world, (table, more) in itertools.product(range(count), (("searches", "term"), ("clicks", "page"))):
        for _ in range(chance.randrange(7)):
            session = chance.choice([None, *[10 * world + n for n in range(2)] * 3])
            moment, value = (chance.choice([None, *range(-3, 4)]) for _ in range(2))
            found[table].append({"id": len(found[table]), "session": session, "moment": moment, more: value})
    return found


@pytest.fixture(scope="module")
def worlds(spark):
    """The parameters of the views by name, for Spark and for DuckDB."""
    small, rows = small_batch_session(spark), many_worlds(400)
    kinds = {n: pa.schema([(c, t.arrow()) for c, t in table.columns.items()]) for n, table in NAMED.items()}
    tables = {name: pa.Table.from_pylist(rows[name], kinds[name]) for name in NAMED}
    return {name: small.createDataFrame(table) for name, table in tables.items()}, tables


def by_spark(name, worlds):
    frames = {table: worlds[0][table] for table in VIEWS[name].tables}
    return in_order(call(VIEWS[name], frames).collect())


def assert_it_has_the_rows_that_duckdb_has(name, worlds, columns):
    right = in_order(tuple(row.values()) for row in run(SQL[name], worlds[1], columns[name]).to_pylist())
    assert by_spark(name, worlds) == right, name
    assert len(right) > 100, name


def test_joins_by_time_have_the_rows_that_duckdb_has(worlds, columns):
    for name in ASKED:
        assert_it_has_the_rows_that_duckdb_has(name, worlds, columns)


# ---- Spark's batches


@pytest.fixture
def live(spark, tmp_path):
    """What writes changes, and a function that lets a runner apply them and returns the rows of a view."""
    group = ProjectionGroup("few_joins", [VIEWS[name] for name in ("before", "left_join", "full_join", "rates")])
    with in_a_file(tmp_path) as store:
        environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        rebuild(environment, group)
        with open_runner(environment, group) as runner:
            yield SimpleNamespace(
                changes=ChangeWriter(environment.log),
                rows=lambda name: (runner.catch_up(), stored(store, group)[name])[1],
            )


def test_a_late_version_of_the_right_side_corrects_past_rows_where_flink_leaves_them_wrong(live):
    live.changes.put(searches, {"id": 1, "session": 7, "moment": 100, "term": 0})
    live.changes.put(clicks, {"id": 1, "session": 7, "moment": 10, "page": 0})
    assert live.rows("before") == [(7, 1, 1)]
    live.changes.put(clicks, {"id": 2, "session": 7, "moment": 90, "page": 0})  # earlier than what was answered
    assert live.rows("before") == [(7, 1, 2)]
    live.changes.put(clicks, {"id": 2, "session": 7, "moment": 101, "page": 0})  # and it was not so after all
    assert live.rows("before") == [(7, 1, 1)]
    live.changes.delete(clicks, {"id": 1})
    assert live.rows("before") == [(7, 1, None)]


def test_a_row_has_either_a_match_or_none_and_never_both(live):
    live.changes.put(searches, {"id": 1, "session": 7, "moment": 100, "term": 0})
    assert live.rows("left_join") == [(7, 1, None)]
    live.changes.put(clicks, {"id": 1, "session": 7, "moment": 102, "page": 0})
    live.changes.put(clicks, {"id": 2, "session": 7, "moment": 99, "page": 0})
    assert live.rows("full_join") == live.rows("left_join") == [(7, 1, 1), (7, 1, 2)]
    assert live.rows("rates") == [(7, 2, 2)]
    live.changes.delete(clicks, {"id": 1})
    live.changes.put(clicks, {"id": 2, "session": 7, "moment": 103, "page": 0})
    assert live.rows("left_join") == [(7, 1, None)]
    assert live.rows("full_join") == [(7, 1, None), (7, None, 2)]
