"""Views over partitions: what DuckDB makes of all rows, after any change in any order, cut and killed anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections import ProjectionGroup, sql_view
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from tests.conformance.join_views import captured
from tests.conformance.killed_batches import (
    EXAMPLES,
    OF_PARTITIONS,
    assert_spark_keeps_as_rebuilt,
    drawn_batches,
    drawn_change,
    few,
    in_a_file,
    in_postgresql,
    live_as_duckdb_says,
    random_batches,
    some,
    until_a_fault_shows,
)
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
    live_as_duckdb_says(store, history, columns, group=GROUP, sql=SQL, named=NAMED, tables=ROWS)


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
@few(SOME)
def test_partitions_are_right_in_postgresql_too(columns, database, history):
    with in_postgresql(database()) as store:
        live_through(store, history, columns)


@pytest.mark.parametrize("fault", OF_PARTITIONS)
def test_a_planted_fault_of_partitions_shows(fault, columns, tmp_path, monkeypatch):
    monkeypatch.setattr(*OF_PARTITIONS[fault])
    with pytest.raises(AssertionError):
        until_a_fault_shows(lambda history: lived(tmp_path, history, columns), histories(), SOME)


def test_spark_keeps_partitions_as_it_would_rebuild_them(spark, tmp_path):
    def check(store, log, *, after):
        assert_views_are_right(store, log, GROUP, SQL, NAMED, after=after)

    assert_spark_keeps_as_rebuilt(spark, tmp_path, GROUP, random_batches(7, ROWS, batches=6), ROWS, check)
