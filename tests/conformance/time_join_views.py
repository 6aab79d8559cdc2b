"""Joins by time as view functions, and as the SQL that DuckDB is asked."""

from __future__ import annotations

from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from projections import ProjectionGroup, join_as_of, join_within, sql_view, view
from tests.captured import captured
from tests.conformance.followed_views import by_duckdb, followed, histories_of, random_batches

searches = captured("searches", "session", "moment", "term")
clicks = captured("clicks", "session", "moment", "page")
NAMED = {"searches": searches, "clicks": clicks}
ROWS = tuple(NAMED.values())
TIMES = ("searched_at", "clicked_at")


def timed(rows, key, time, more):
    return rows.select("session", F.col("id").alias(key), F.timestamp_micros("moment").alias(time), more)


def micros(count):
    return f"{count} microseconds"


def within(name, lower, upper, how):
    """A view: searches and clicks whose times, in microseconds, are apart by the bounds."""
    key = "search_id" if how in ("semi", "anti") else ("search_id", "click_id")

    def joined(searches, clicks):
        left, right = timed(searches, "search_id", TIMES[0], "term"), timed(clicks, "click_id", TIMES[1], "page")
        found = join_within(left, right, on="session", times=TIMES, lower=micros(lower), upper=micros(upper), how=how)
        return found.select("session", *([key] if isinstance(key, str) else key))

    joined.__name__, joined.signature = name, name
    return view(by="session", key=key, tables=NAMED)(joined)


def as_of(name, **options):
    """A view: each search with one click."""

    def joined(searches, clicks):
        left, right = timed(searches, "search_id", TIMES[0], "term"), timed(clicks, "click_id", TIMES[1], "page")
        return join_as_of(left, right, on="session", times=TIMES, **options).select("session", "search_id", "click_id")

    joined.__name__, joined.signature = name, name
    return view(by="session", key="search_id", tables=NAMED)(joined)


@view(by="session", key=("search_id", "next_id"))
def followers(searches: DataFrame) -> DataFrame:
    """Each search with those that follow it."""
    left = timed(searches, "search_id", "at", "term")
    found = join_within(
        left, left, on="session", times=("at", "at"), lower=micros(1), upper=micros(2), take={"next_id": "search_id"}
    )
    return found.select("session", "search_id", "next_id")


def sql_within(how, lower, upper, session="s.session"):
    return (
        f"SELECT {session} AS session, s.id AS search_id, c.id AS click_id FROM searches s {how} JOIN clicks c"
        f" ON s.session = c.session AND c.moment BETWEEN s.moment + ({lower}) AND s.moment + ({upper})"
    )


def sql_exists(negated):
    return (
        f"SELECT session, id AS search_id FROM searches s WHERE {negated} EXISTS (SELECT 1 FROM clicks c"
        " WHERE c.session = s.session AND c.moment - s.moment BETWEEN -1 AND 2)"
    )


def sql_as_of(condition, order):
    return (
        "SELECT session, id AS search_id, (SELECT c.id FROM clicks c WHERE c.session = s.session AND c.moment IS NOT"
        f" NULL AND {condition} ORDER BY {order}, c.id DESC LIMIT 1) AS click_id FROM searches s WHERE s.moment IS NOT"
        " NULL UNION ALL SELECT session, id, NULL FROM searches WHERE moment IS NULL"
    )


LAST_OF_EACH_TIME = "(SELECT session, moment, max(id) AS id FROM clicks GROUP BY session, moment)"
BOTH = "coalesce(s.session, c.session)"
# By name: the view, and what DuckDB is asked, which is written without it.
ASKED = {
    "inner_join": (within("inner_join", -1, 2, "inner"), sql_within("INNER", -1, 2)),
    "left_join": (within("left_join", -1, 2, "left"), sql_within("LEFT", -1, 2)),
    "right_join": (within("right_join", -1, 2, "right"), sql_within("RIGHT", -1, 2, "c.session")),
    "full_join": (within("full_join", -1, 2, "full"), sql_within("FULL", -1, 2, BOTH)),
    "semi_join": (within("semi_join", -1, 2, "semi"), sql_exists("")),
    "anti_join": (within("anti_join", -1, 2, "anti"), sql_exists("NOT")),
    "only_before": (within("only_before", -3, -1, "left"), sql_within("LEFT", -3, -1)),
    "at_one_time": (within("at_one_time", 0, 0, "full"), sql_within("FULL", 0, 0, BOTH)),
    "followers": (followers, """
        SELECT a.session, a.id AS search_id, b.id AS next_id FROM searches a LEFT JOIN searches b
        ON a.session = b.session AND b.moment BETWEEN a.moment + 1 AND a.moment + 2"""),
    "before": (as_of("before"), f"""
        SELECT s.session, s.id AS search_id, c.id AS click_id FROM searches s
        ASOF LEFT JOIN {LAST_OF_EACH_TIME} c ON s.session = c.session AND s.moment >= c.moment"""),
    "after": (as_of("after", direction="forward", how="inner"), f"""
        SELECT s.session, s.id AS search_id, c.id AS click_id FROM searches s
        ASOF JOIN {LAST_OF_EACH_TIME} c ON s.session = c.session AND s.moment <= c.moment"""),
    "strictly_before": (as_of("strictly_before", exact=False, tolerance=micros(2)), sql_as_of(
        "c.moment < s.moment AND c.moment >= s.moment - 2", "c.moment DESC")),
    "nearby": (as_of("nearby", direction="nearest", exact=False, tolerance=micros(3)), sql_as_of(
        "c.moment <> s.moment AND abs(c.moment - s.moment) <= 3", "abs(c.moment - s.moment), c.moment")),
    "on_condition": (as_of("on_condition", direction="nearest", condition="page > term"), sql_as_of(
        "c.page > s.term", "abs(c.moment - s.moment), c.moment")),
    "on_condition_nearby": (as_of("on_condition_nearby", direction="forward", condition="page > term", exact=False,
                                  tolerance=micros(2)), sql_as_of(
        "c.page > s.term AND c.moment > s.moment AND c.moment <= s.moment + 2", "c.moment")),
    "of_the_greatest_page": (as_of("of_the_greatest_page", ties="page"), sql_as_of(
        "c.moment <= s.moment", "c.moment DESC, c.page DESC NULLS LAST")),
    "of_the_greatest_page_above": (as_of("of_the_greatest_page_above", ties="page", condition="page > term",
                                         tolerance=micros(2)), sql_as_of(
        "c.page > s.term AND c.moment BETWEEN s.moment - 2 AND s.moment", "c.moment DESC, c.page DESC")),
}  # fmt: skip
VIEWS = {name: declared for name, (declared, _) in ASKED.items()}
SQL = {name: " ".join(sql.split()) for name, (_, sql) in ASKED.items()}
# A view behind one: how many searches of a session led to a click.
SQL["rates"] = "SELECT session, count(*) AS pairs, count(click_id) AS clicked FROM left_join GROUP BY session"
VIEWS["rates"] = sql_view("rates", SQL["rates"], tables=VIEWS)
GROUP = ProjectionGroup("joins_by_time", list(VIEWS.values()))
HISTORIES = histories_of(ROWS, lambda column: st.none() | st.integers(0, 4), batches=7)
WORLD = by_duckdb(GROUP, SQL, NAMED)
FOLLOWED = followed(
    WORLD,
    HISTORIES,
    10,
    random_batches(7, ROWS, lambda column: [None, 0, 1, 2, 3], batches=5),
)
