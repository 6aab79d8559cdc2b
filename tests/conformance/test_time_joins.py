"""Joins by time: what DuckDB makes of all rows, after any change in any order, cut and killed anywhere."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from projections import (
    Environment,
    ProjectionGroup,
    join_as_of,
    join_within,
    open_runner,
    rebuild,
    sql_view,
    view,
)
from projections.spark.session import small_batch_session
from projections.spark.timing import joins
from projections.spark.timing.closest import Search
from projections.spark.timing.pairs import Pairs
from projections.spark.timing.sides import Sides
from projections.spark.views.frames import call
from projections.spark.views.view_functions import view_columns
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.generated_views import Batch
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
from tests.conformance.relational_batches import run
from tests.conformance.view_oracle import assert_views_are_right, in_order, stored

pytestmark = [pytest.mark.kills, pytest.mark.timeout(300 + 5 * EXAMPLES)]
SOME = some(10)


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
}  # fmt: skip
VIEWS = {name: declared for name, (declared, _) in ASKED.items()}
SQL = {name: " ".join(sql.split()) for name, (_, sql) in ASKED.items()}
# A view behind one: how many searches of a session led to a click.
SQL["rates"] = "SELECT session, count(*) AS pairs, count(click_id) AS clicked FROM left_join GROUP BY session"
VIEWS["rates"] = sql_view("rates", SQL["rates"], tables=VIEWS)
GROUP = ProjectionGroup("joins_by_time", list(VIEWS.values()))

_OR_NULL = st.one_of(st.none(), st.integers(0, 4))


@st.composite
def histories(draw):
    """Rows that come, move to other sessions and times, go, come late, and come twice; some batches are killed."""

    return drawn_batches(draw, lambda: drawn_change(draw, ROWS, _OR_NULL), batches=7)


def live_through(store, history, columns):
    live_as_duckdb_says(store, history, columns, group=GROUP, sql=SQL, named=NAMED, tables=ROWS)
    return stored(store, GROUP)


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(small_batch_session(spark), GROUP)


def lived(folder, history, columns):
    with in_a_file(folder) as store:
        return live_through(store, history, columns)


@given(history=histories())
@SOME
def test_joins_by_time_are_right_after_any_batch(columns, tmp_path, history):
    lived(tmp_path, history, columns)


@given(history=histories())
@few(SOME)
def test_joins_by_time_are_right_in_postgresql_too(columns, database, history):
    with in_postgresql(database()) as store:
        live_through(store, history, columns)


@given(history=histories(), cuts=st.lists(st.booleans(), min_size=50, max_size=50))
@settings(SOME, max_examples=max(3, EXAMPLES // 10))
def test_a_join_by_time_does_not_depend_on_where_the_log_is_cut_into_batches(columns, tmp_path, history, cuts):
    changes = [change for batch in history for change in batch.changes]
    parts, one = [[]], [Batch(changes, None)]
    for change, cut in zip(changes, itertools.cycle(cuts), strict=False):
        parts[-1].append(change)
        if cut:
            parts.append([])
    several = [Batch(part, None) for part in parts if part]
    assert lived(tmp_path, several, columns) == lived(tmp_path, one, columns)


@pytest.mark.parametrize("fault", OF_PARTITIONS)
def test_a_planted_fault_of_batches_shows(fault, columns, tmp_path, monkeypatch):
    monkeypatch.setattr(*OF_PARTITIONS[fault])
    with pytest.raises(AssertionError):
        until_a_fault_shows(lambda history: lived(tmp_path, history, columns), histories(), SOME)


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


@pytest.mark.parametrize("name", ASKED)
def test_a_join_by_time_has_the_rows_that_duckdb_has(name, worlds, columns):
    right = in_order(tuple(row.values()) for row in run(SQL[name], worlds[1], columns[name]).to_pylist())
    assert by_spark(name, worlds) == right
    assert len(right) > 100


def _ends_before(self: Sides) -> Column:
    return _APART(self) + 1


def _without_ties(right, ties):
    return _ORDER(right, ())


def _one_stretch(self: Pairs, rows, at, first, last):
    return _SEVERAL(self, rows, at, first, first)


def _only_before(self: Search):
    return None, 0


def _later_first(self: Search) -> Column:
    return F.coalesce(self._own("found_after"), self._own("found_before"))


def _equal_times_too(self: Search, way: str):
    return _WINDOW(SimpleNamespace(sides=self.sides, exact=True, _own=self._own), way)


_APART, _SEVERAL, _ORDER, _WINDOW = Sides.apart, Pairs._several, joins._order, Search._window
IN_FUNCTIONS = {
    "bounds are moved by a microsecond": ("left_join", Sides, "apart", _ends_before),
    "matches in the next stretch of time are not looked for": ("semi_join", Pairs, "_several", _one_stretch),
    "rows of the right without a match are forgotten": (
        "full_join", joins, "_alone", lambda right, sides: _ALONE(right.where("false"), sides)),
    "ties are not looked at": ("of_the_greatest_page", joins, "_order", _without_ties),
    "the later one is preferred": ("nearby", Search, "_closest", _later_first),
    "equal times are near": ("strictly_before", Search, "_window", _equal_times_too),
    "a condition is asked of rows before alone": ("on_condition", Search, "_bounds", _only_before),
}  # fmt: skip
_ALONE = joins._alone


@pytest.mark.parametrize("fault", IN_FUNCTIONS)
def test_a_planted_fault_of_a_join_shows(fault, worlds, columns, monkeypatch):
    name, where, attribute, planted = IN_FUNCTIONS[fault]
    monkeypatch.setattr(where, attribute, planted)
    with pytest.raises(AssertionError):
        test_a_join_by_time_has_the_rows_that_duckdb_has(name, worlds, columns)


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


def test_spark_keeps_joins_by_time_as_it_would_rebuild_them(spark, tmp_path):
    def check(store, log, *, after):
        assert_views_are_right(store, log, GROUP, SQL, NAMED, after=after)

    assert_spark_keeps_as_rebuilt(spark, tmp_path, GROUP, random_batches(7, ROWS, batches=5), ROWS, check)
