"""Views over partitions: what DuckDB makes of all rows, after any change in any order, cut and killed anywhere."""

from __future__ import annotations

import random
from contextlib import closing
from functools import partial

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from projections import Environment, ProjectionGroup, open_runner, rebuild, sql_view, verify
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.tablestore.sqlite import SqliteTableStore
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.generated_views import Batch, Change
from tests.conformance.join_views import captured
from tests.conformance.killed_batches import (
    EXAMPLES,
    LEFT_PARTITIONS,
    ROWS_STAY,
    carry_in,
    drawn_batches,
    drawn_change,
    in_a_file,
    in_postgresql,
    some,
    write,
)
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.view_oracle import assert_views_are_right

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]
SOME = some(12)


orders = captured("orders", "shop", "moment", "amount")
visits = captured("visits", "shop", "moment", "page")
NAMED = {"orders": orders, "visits": visits}
ROWS = tuple(NAMED.values())

# By name: the key within a shop, and the query, which Spark and DuckDB read alike.
QUERIES = {
    "greatest": ("n", """
        SELECT shop, n, id, amount FROM (SELECT shop, id, amount, row_number() OVER (
            PARTITION BY shop ORDER BY amount DESC NULLS LAST, id) AS n FROM orders) o WHERE n <= 2"""),
    "neighbours": ("id", """
        SELECT shop, id, lag(amount) OVER w AS was, lead(id, 1, -1) OVER w AS follower FROM orders
        WINDOW w AS (PARTITION BY shop ORDER BY moment NULLS FIRST, id)"""),
    "running": ("id", """
        SELECT shop, id, sum(amount) OVER (PARTITION BY shop ORDER BY moment NULLS FIRST, id ROWS UNBOUNDED PRECEDING)
            AS total, count(*) OVER (PARTITION BY shop ORDER BY moment NULLS FIRST) AS so_far FROM orders"""),
    "latest": ("", """
        SELECT shop, id, amount FROM (SELECT shop, id, amount, row_number() OVER (
            PARTITION BY shop ORDER BY moment DESC NULLS LAST, id DESC) AS n FROM orders) o WHERE n = 1"""),
    "amounts": ("amount", "SELECT DISTINCT shop, amount FROM orders"),
    "visited": ("id", "SELECT o.shop, o.id FROM orders o WHERE EXISTS ("
                      "SELECT 1 FROM visits v WHERE v.shop = o.shop AND v.moment <= o.moment)"),
    "unvisited": ("id", "SELECT o.shop, o.id FROM orders o WHERE NOT EXISTS ("
                        "SELECT 1 FROM visits v WHERE v.shop = o.shop AND v.moment <= o.moment)"),
    "led_to": (("visit", "order_id"), """
        SELECT v.shop, v.id AS visit, o.id AS order_id, o.amount FROM visits v LEFT JOIN orders o
        ON v.shop = o.shop AND o.moment BETWEEN v.moment AND v.moment + 1"""),
    "either": (("visit", "order_id"), """
        SELECT coalesce(v.shop, o.shop) AS shop, v.id AS visit, o.id AS order_id FROM visits v FULL JOIN orders o
        ON v.shop = o.shop AND o.moment = v.moment"""),
    "counts": ("", """
        SELECT coalesce(o.shop, v.shop) AS shop, o.n AS orders, v.n AS visits
        FROM (SELECT shop, count(*) AS n FROM orders GROUP BY shop) o
        FULL JOIN (SELECT shop, count(*) AS n FROM visits GROUP BY shop) v ON v.shop IS NOT DISTINCT FROM o.shop"""),
}  # fmt: skip
VIEWS = {name: sql_view(name, sql, tables=NAMED, by="shop", key=key or None) for name, (key, sql) in QUERIES.items()}
SQL = {name: sql for name, (_, sql) in QUERIES.items()}
# What one of them says, grouped by another column: a view behind a view over partitions.
VIEWS["sellers"] = sql_view(
    "sellers", "SELECT n, count(*) AS shops, sum(amount) AS amount FROM greatest GROUP BY n", tables=VIEWS
)
SQL["sellers"] = "SELECT n, count(*) AS shops, sum(amount) AS amount FROM greatest GROUP BY n"
GROUP = ProjectionGroup("partitions", list(VIEWS.values()))

_NUMBERS = st.integers(0, 3)
_OR_NULL = st.one_of(st.none(), _NUMBERS)


@st.composite
def histories(draw):
    """Rows that come, move to other shops and times, go, come late, and come twice; some batches are killed."""

    return drawn_batches(draw, lambda: drawn_change(draw, ROWS, _OR_NULL))


def live_through(store, history, columns):
    log = MemoryLog()
    changes, batches = ChangeWriter(log), RelationalBatches(store, log, GROUP, SQL, columns)
    check = partial(assert_views_are_right, store, log, GROUP, SQL, NAMED)
    carry_in(batches, history, partial(write, changes, ROWS), check)


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(small_batch_session(spark), GROUP)


def lived(folder, history, columns):
    with in_a_file(folder) as store:
        live_through(store, history, columns)


@given(history=histories())
@SOME
def test_partitions_are_right_after_any_batch(columns, tmp_path, history):
    lived(tmp_path, history, columns)


@given(history=histories())
@settings(SOME, max_examples=max(2, EXAMPLES // 10))
def test_partitions_are_right_in_postgresql_too(columns, database, history):
    with in_postgresql(database()) as store:
        live_through(store, history, columns)


@seed(3)
@given(history=histories())
@settings(SOME, max_examples=200, derandomize=False, database=None)
def long_enough_to_see_a_fault(columns, folder, history):
    lived(folder, history, columns)


FAULTS = {"partitions that rows were in are forgotten": LEFT_PARTITIONS, "rows that are gone stay": ROWS_STAY}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_partitions_shows(fault, columns, tmp_path, monkeypatch):
    module, name, planted = FAULTS[fault]
    monkeypatch.setattr(module, name, planted)
    with pytest.raises(AssertionError):
        long_enough_to_see_a_fault(columns, tmp_path)


def random_batches(seed):
    """A few of what Hypothesis would draw, for Spark, whose batches take longer."""
    chance = random.Random(seed)
    for _ in range(6):
        changes = []
        for _ in range(8):
            table = chance.randrange(2)
            columns = list(ROWS[table].payload)
            values = None if chance.random() < 0.2 else {c: chance.choice([None, 0, 1, 2, 3]) for c in columns}
            changes.append(Change(table, {"id": chance.randrange(6)}, values, chance.randrange(3), 1))
        yield Batch(changes, None)


def test_spark_keeps_partitions_as_it_would_rebuild_them(spark, tmp_path):
    with closing(SqliteTableStore(tmp_path / "live.db")) as store:
        store.prepare()
        environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
        rebuild(environment, GROUP)
        changes = ChangeWriter(environment.log)
        with open_runner(environment, GROUP) as runner:
            for number, batch in enumerate(random_batches(7)):
                write(changes, ROWS, batch)
                runner.catch_up()
                assert_views_are_right(store, environment.log, GROUP, SQL, NAMED, after=f"batch {number}")
        verdicts = verify(environment, GROUP)
        assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()
    with closing(SqliteTableStore(tmp_path / "again.db")) as store:
        store.prepare()
        again = Environment(spark, small_batch_session(spark), store, environment.log)
        rebuild(again, GROUP)
        assert_views_are_right(store, again.log, GROUP, SQL, NAMED, after="the rebuild")
