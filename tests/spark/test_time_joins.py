"""Joins by time, and windows that slide with a row: which columns they have, and what is refused before a run."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, join_as_of, join_within, session, sliding, tumbling, view, windowed
from projections.declaring.timing.promises import Reach
from projections.errors import InvalidDefinition
from projections.spark.views.partials import call, handed
from projections.spark.views.view_functions import view_columns
from projections.testing.trial import ViewTrial
from tests.captured import captured
from tests.errors import refused
from tests.integration.payments import entries_of
from tests.rows import each_row
from tests.spark.test_as_of import paid, rows_of

MOMENT = sa.DateTime(timezone=True)


searches = captured("searches", "session", "term", key=("search_id",), searched_at=MOMENT)
clicks = captured("clicks", "session", "page", key=("click_id",), clicked_at=MOMENT)
visits = captured("visits", key=("visit_id",), session=sa.Integer, visited_at=MOMENT)
TABLES = {"searches": searches, "clicks": clicks, "visits": visits}
TIMES = ("searched_at", "clicked_at")
START = dt.datetime(2026, 3, 29, 0, 59, 59, 999_999, tzinfo=dt.UTC)  # before the hour that Berlin leaves out


def declared(function, *, key=("search_id", "click_id")):
    def joined(searches, clicks, visits):
        return function(searches, clicks, visits)

    return view(tables=TABLES, by="session", key=key)(joined)


def planned(small, function, *, key=("search_id", "click_id")):
    """The columns of a view."""
    found = view_columns(small, ProjectionGroup("joins", [declared(function, key=key)]))
    return list(found["joined"])


def within(how="left", **options):
    """A function of a view that joins searches and clicks within ten minutes."""
    options = {"on": "session", "times": TIMES, "upper": "10 minutes", "how": how, **options}
    return lambda searches, clicks, visits: join_within(searches, clicks, **options)


def as_of(**options):
    """A function of a view that joins each search and a click."""
    options = {"on": "session", "times": TIMES, **options}
    return lambda searches, clicks, visits: join_as_of(searches, clicks, **options)


OURS, THEIRS = ["search_id", "session", "term", "searched_at"], ["click_id", "page", "clicked_at"]


@each_row("how", ["inner", "left", "right", "full"])
def test_a_join_within_bounds_has_the_columns_of_both(small, how):
    assert planned(small, within(how)) == [*OURS, *THEIRS]


@each_row("how", ["semi", "anti"])
def test_a_join_that_only_asks_whether_there_is_a_match_has_the_columns_of_the_left(small, how):
    assert planned(small, within(how), key="search_id") == OURS


def test_a_floating_point_column_may_be_beside_a_condition(small):
    assert planned(small, with_more("1D * term"), key="search_id") == [*OURS, "more", *THEIRS]


def test_one_column_of_the_right_is_taken_by_its_name(small):
    for joined in (within(take="click_id"), as_of(take="click_id")):
        assert planned(small, joined) == [*OURS, "click_id"]


def test_a_stream_is_joined_with_itself_under_other_names(small):
    def followers(searches, clicks, visits):
        times, taken = ("searched_at", "searched_at"), {"next_id": "search_id"}
        return join_within(
            searches, searches, on="session", times=times, lower="1 microsecond", upper="1 day", take=taken
        )

    assert planned(small, followers, key=("search_id", "next_id")) == [*OURS, "next_id"]


@each_row(
    "condition", [lambda: None, lambda: "page > term", lambda: F.col("page") > F.col("term")], ids=["any", "sql", "col"]
)
@each_row("direction", ["backward", "forward", "nearest"])
def test_the_rows_of_an_as_of_join_are_told_apart_as_those_of_its_left_side(small, direction, condition):
    def numbered(*frames):
        found = as_of(direction=direction, condition=condition())(*frames)
        return found.withColumn("n", F.expr("row_number() OVER (PARTITION BY session ORDER BY search_id)"))

    assert planned(small, numbered, key="n") == [*OURS, *THEIRS, "n"]


def test_a_join_by_time_follows_another(small):
    def both(searches, clicks, visits):
        near = join_as_of(searches, visits, on="session", times=("searched_at", "visited_at"), direction="nearest")
        return join_within(near, clicks, on="session", times=TIMES, upper="1 hour", how="full")

    assert planned(small, both) == [*OURS, "visit_id", "visited_at", *THEIRS]


@each_row("condition", [None, "visit_id > term"])
@each_row("joined", [join_as_of, join_within])
def test_partitions_of_whole_numbers_of_two_sizes_meet(small, joined, condition):
    def of_two_sizes(searches, clicks, visits):
        more = {"upper": "1 hour"} if joined is join_within else {"condition": condition}
        wide = joined(searches, visits, on="session", times=("searched_at", "visited_at"), **more)
        narrow = joined(visits, searches, on="session", times=("visited_at", "searched_at"), **more)
        return wide.select("session", "search_id", "visit_id").union(narrow.select("session", "search_id", "visit_id"))

    assert planned(small, of_two_sizes, key=("search_id", "visit_id")) == ["session", "search_id", "visit_id"]


def without_a_key(**options):
    def keyless(searches, clicks, visits):
        found = join_as_of(searches, clicks.drop("click_id"), on="session", times=TIMES, **options)
        return found.withColumn("click_id", F.col("page"))

    return keyless


def with_more(more):
    """A function of a view whose left side has a column more, in SQL."""

    def joined(searches, clicks, visits):
        more_of_each = searches.withColumn("more", F.expr(more))
        return join_as_of(more_of_each, clicks, on="session", times=TIMES, condition="page > term")

    return joined


REACHES = {  # what a function looks at, and a reach that is too short for it
    "the later bound": (within(lower="-1 minute"), "9 minutes", "looks 10 minutes away, and a reach of 9 minutes"),
    "the earlier bound": (within("full", lower="-11 minutes"), "10 minutes", "looks 11 minutes away"),
    "a semi join": (within("semi"), "1 minute", "looks 10 minutes away"),
    "a tolerance": (as_of(tolerance="1 hour"), "59 minutes", "looks 1 hour away"),
    "a tolerance and a condition": (as_of(tolerance="1 hour", condition="page > term"), "59 minutes", "looks 1 hour"),
    "no tolerance": (as_of(), "300 days", "looks at rows of any time"),
    "no tolerance, and a condition": (as_of(condition="page > term"), "300 days", "looks at rows of any time"),
}  # fmt: skip


def reaching(small, function, length):
    """A view that promises how far it looks."""
    found = declared(lambda *frames: function(*frames).withColumn("click_id", F.col("search_id")), key="search_id")
    promised = replace(found, reach=Reach(length, on="searched_at"))
    return view_columns(small, ProjectionGroup("joins", [promised]))


@each_row("case", REACHES)
def test_a_join_that_looks_further_than_its_view_says_is_refused(small, case):
    function, length, words = REACHES[case]
    refused(lambda: reaching(small, function, length), words)


def test_a_join_may_look_as_far_as_its_view_says(small):
    for function in (within("semi"), as_of(tolerance="10 minutes"), within("semi", lower="-10 minutes")):
        assert reaching(small, function, "10 minutes")


REFUSED = {
    "bounds the wrong way round": (within(lower="1 second", upper="-1 second"), "no time between", "swap them"),
    "a bound of months": (within(upper="1 month"), "upper '1 month' is of months", "30 days"),
    "a bound without a unit": (within(upper="10"), "'10' is no length of time", "'10 minutes'"),
    "a time that is no column": (within(times=("at", "clicked_at")), "rows of the left have no column 'at'",
                                 "searched_at"),
    "another one": (within(times=("searched_at", "at")), "rows of the right have no column 'at'",
                    "clicked_at"),
    "a time that is a number": (as_of(times=("term", "clicked_at")), "'term' of the rows of the left is bigint",
                                "timestamp_micros(term)"),
    "one time": (as_of(times="searched_at"), "the times 'searched_at'", "name two"),
    "an unknown kind of join": (within("cross"), "cannot join 'cross'", "inner, left, right, full, semi, anti"),
    "an as-of join that keeps the right": (as_of(how="right"), "cannot join 'right'", "inner, left"),
    "an unknown direction": (as_of(direction="before"), "cannot look 'before'", "backward, forward, nearest"),
    "a negative tolerance": (as_of(tolerance="-1 second"), "tolerance '-1 second' is negative", "direction says"),
    "a column to join on that is not there": (as_of(on="shop"), "no column 'shop'", "session"),
    "nothing to join on": (as_of(on=()), "on no columns", "columns of by"),
    "a name that both sides have": (within(take={"term": "page"}), "two columns 'term'", "right_term"),
    "an unknown column that is taken": (within(take=["term"]), "rows of the right have no column 'term'",
                                        "page"),
    "columns of a side that only has to be there": (within("semi", take=["page"]), "a semi join has none",
                                                    "leave out take"),
    "ties of an unknown column": (as_of(ties="at"), "no column 'at'", "click_id"),
    "rows of one time that nothing tells apart": (without_a_key(), "no key to choose one", "name in ties"),
    "rows of one time that ties do not tell apart": (without_a_key(ties="page"), "max_by, which depends on",
                                                     "whole key"),
    "another partition": (within(on="term", take={}), "no column 'term'", "session"),
    "a join by what is no partition": (
        lambda s, c, v: join_within(s, c.withColumn("term", c.page), on="term", times=TIMES, upper="1 day",
                                    take=["click_id"]),
        "a join of rows of several partitions", "by the columns of by"),
    "several matches under one key": (lambda *f: within()(*f).drop("click_id"), "click_id", "select it too"),
    "a condition of an unknown column": (as_of(condition="price > 3"), "price", "term"),
    "a map that a condition would compare": (with_more("map('term', term)"), "'more' is map", "leave it out"),
    "a floating-point number in a list that a condition would compare": (
        with_more("array(1D * term)"), "'more' is array<double>", "leave it out"),
}  # fmt: skip


@each_row("case", REFUSED)
def test_a_join_by_time_that_cannot_be_right_is_refused(small, case):
    function, words, remedy = REFUSED[case]
    refused(lambda: planned(small, function), words, remedy)


# ---- rows


def at(micros):
    return None if micros is None else START + dt.timedelta(microseconds=micros)


def rows(small, ours, theirs):
    """The parameters of a view: rows as (key, session, micros), which are also told by their number."""
    lasting = "session bigint, {key} bigint, {at} timestamp, {more} bigint"
    left = small.createDataFrame(
        [(s, k, at(m), k % 3) for k, s, m in ours], lasting.format(key="search_id", at="searched_at", more="term")
    )
    right = small.createDataFrame(
        [(s, k, at(m), k % 5) for k, s, m in theirs], lasting.format(key="click_id", at="clicked_at", more="page")
    )
    seen = small.createDataFrame([], "session int, visit_id bigint, visited_at timestamp")
    found = declared(within())
    return handed(found, {"searches": left, "clicks": right, "visits": seen})


ENTRIES = entries_of()
OF_ONE_TIME = [(*paid("p", 7, 1, version=version), "2026-01-01T00:05:00Z") for version in (9, 10)]  # "p@9" > "p@10"


def newest_of(entries, condition=None):
    """The view, once planned, that gives each entry the newest one of its payment."""

    def newest(entries):
        times, taken = ("event_time", "event_time"), {"newest": "entry"}
        return join_as_of(entries, entries, on="payment_id", times=times, take=taken, condition=condition)

    return view(tables={"entries": entries}, by="payment_id", key="entry")(newest)


@each_row("condition", [None, "true"])
def test_of_events_of_one_time_the_later_in_the_log_of_their_aggregate_is_meant(small, condition):
    found = newest_of(ENTRIES, condition)
    rows = call(found, {"entries": rows_of(small, ENTRIES, OF_ONE_TIME)})
    assert {row.entry: row.newest for row in rows.collect()} == {"p@9": "p@10", "p@10": "p@10"}


def test_events_have_the_order_of_their_aggregate_in_their_windows_too(small):
    hours = windowed("hours", ENTRIES, tumbling("1 hour"), on="event_time")
    days = windowed("days", hours, session("1 day", by="payment_id"), on="event_time", named="day")
    group = ProjectionGroup("newest", [newest_of(days)])
    found = group.resolved(view_columns(small, group)).views[0]
    rows = call(found, {"entries": days(hours(rows_of(small, ENTRIES, OF_ONE_TIME)))})
    assert {row.entry: row.newest for row in rows.collect()} == {"p@9": "p@10", "p@10": "p@10"}


def test_left_rows_that_differ_in_the_sign_of_zero_alone_have_each_a_match_of_their_own(small):
    searches, clicks, visits = rows(small, [(1, 1, 0)], [(3, 1, 0), (4, 1, 0)])
    both = searches.select("*", F.expr("explode(array(0D, -0D, NULL, 'NaN'))").alias("sign"))
    found = as_of(condition="page = IF(CAST(sign AS string) = '-0.0', 3, 4)")(both, clicks, visits)
    assert {(str(row.sign), row.click_id) for row in found.collect()} == {
        ("0.0", 4), ("-0.0", 3), ("None", 4), ("nan", 4)}  # fmt: skip


def test_left_rows_that_are_equal_throughout_are_each_kept(small):
    searches, clicks, visits = rows(small, [(1, 1, 0), (2, 1, 0)], [(3, 1, 0)])
    alike = searches.select(F.lit(0).alias("search_id"), "session", "searched_at")
    for condition in (None, "page > 0"):
        found = as_of(condition=condition)(alike, clicks, visits).select("search_id", "click_id")
        assert found.collect() == [(0, 3), (0, 3)]


# ---- sliding windows


orders = Table.from_changelog(
    sa.Table(
        "orders",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("customer_id", sa.BigInteger),
        sa.Column("at", sa.DateTime(timezone=True)),
    ),
    topic="shop.public.orders",
)
HOUR = dt.timedelta(hours=1)
NOON = dt.datetime(2026, 11, 26, 12, tzinfo=dt.UTC)


@view(key="id", by="customer_id", tables={"orders": orders})
def last_hour(orders: DataFrame) -> DataFrame:
    return orders.withColumn("recent", F.count("*").over(sliding("at", "1 hour", by="customer_id")))


@pytest.fixture
def view_spark(spark: SparkSession) -> SparkSession:
    """The session of our own tests, in place of the plug-in's."""
    return spark


def test_a_row_counts_what_is_an_hour_old_to_the_microsecond_whatever_comes_late_or_goes(
    view_trial: Callable[[ProjectionGroup], ViewTrial],
) -> None:
    chance, rows = random.Random(5), dict[int, dict[str, object]]()
    trial = view_trial(ProjectionGroup("sliding", [last_hour]))
    steps = (dt.timedelta(), HOUR, HOUR + dt.timedelta(microseconds=1), -HOUR, dt.timedelta(minutes=20), None)
    for batch in range(3):
        for _ in range(6):
            step, number = chance.choice(steps), chance.randrange(10)
            moment = None if step is None else NOON + step * chance.randrange(3)
            rows[number] = {"id": number, "customer_id": chance.randrange(2), "at": moment}
            trial.put(orders, rows[number])
        if batch:
            trial.delete(orders, {"id": (gone := chance.choice(sorted(rows)))})
            del rows[gone]
        trial.check()
        found = {row["id"]: row["recent"] for row in trial.rows("last_hour")}
        assert found == {number: expected(row, rows) for number, row in rows.items()}


def expected(row: dict, rows: dict) -> int:
    own = [other["at"] for other in rows.values() if other["customer_id"] == row["customer_id"]]
    if row["at"] is None:
        return own.count(None)
    return sum(at is not None and row["at"] - HOUR <= at <= row["at"] for at in own)


@each_row(("size", "says"), [("-1 hour", "is negative"), ("1 month", "is of months"), ("x", "no length")])
def test_a_size_that_is_none_is_refused(size: str, says: str) -> None:
    with pytest.raises(InvalidDefinition, match=says):
        sliding("at", size, by="customer_id")
