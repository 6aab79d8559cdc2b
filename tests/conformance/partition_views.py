"""Views over partitions, which DuckDB and Spark read alike."""

from __future__ import annotations

from hypothesis import strategies as st

from projections import ProjectionGroup, sql_view
from tests.captured import captured
from tests.conformance.followed_views import by_duckdb, followed, histories_of, random_batches

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
FOLLOWED = followed(
    by_duckdb(GROUP, SQL, NAMED),
    histories_of(ROWS, lambda column: st.none() | st.integers(0, 3)),
    12,
    random_batches(7, ROWS, lambda column: [None, 0, 1, 2, 3], batches=6),
)
