"""match_pattern in Spark: what it returns of rows of all types, and what is refused when its view is planned."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, field, label, match_pattern, previous, rows_of, view
from projections.declaring.timing.promises import Reach
from projections.errors import InvalidDefinition, PatternTooWide, UnsupportedValue
from projections.spark.failures import described
from projections.spark.views.view_functions import view_columns
from tests.errors import refused
from tests.rows import each_row

BEGIN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
COLUMNS = "id bigint, account string, at timestamp, amount decimal(18,2), size double, whole int, day date, note string"
low, high = label("low", field("amount") < 10), label("high", field("amount") > 50)
FRAUD = low.times(3).followed_by(high).within("10 seconds")


def payments(small, amounts, *, account="x"):
    """A row a second, which says the same in columns of several types."""
    rows = [
        (n, account, BEGIN + dt.timedelta(seconds=n), Decimal(a), float(a), int(a), BEGIN.date(), f"note {n}")
        for n, a in enumerate(amounts)
    ]
    return small.createDataFrame(rows, COLUMNS)


def collected(rows):
    return [tuple(row) for row in rows.collect()]


def test_a_match_has_its_partition_the_key_of_its_first_row_and_measures(small):
    measures = {
        "large_id": high.last("id"), "noted": low.first("note"), "rows": rows_of().count(),
        "total": low.total("amount"), "wholes": low.total("whole"), "average": low.average("amount"),
        "mean": low.average("whole"), "least": low.least("size"), "greatest": low.greatest("at"),
        "day": rows_of("high").last("day"),
    }  # fmt: skip
    found = match_pattern(
        payments(small, [20, 1, 2, 4, 20, 90, 1]), FRAUD, by="account", time="at", key="id", measures=measures
    )
    assert collected(found) == [
        ("x", 1, 5, "note 1", 4, Decimal("7.00"), 7, Decimal("2.333333"), Decimal("2.3333"), 1.0,
         dt.datetime(2026, 3, 1, 0, 0, 3), dt.date(2026, 3, 1))
    ]  # fmt: skip
    kinds = dict(found.dtypes)
    assert (kinds["total"], kinds["average"], kinds["mean"]) == ("decimal(28,2)", "decimal(22,6)", "decimal(23,4)")


def test_a_measure_of_a_label_without_rows_is_null(small):
    pattern = low.then(high.optional())
    measures = {"last": high.last("id"), "total": high.total("amount"), "rows": high.count()}
    found = match_pattern(payments(small, [1]), pattern, by="account", time="at", key="id", measures=measures)
    assert collected(found) == [("x", 0, None, None, 0)]


def test_each_row_of_a_match_has_its_label(small):
    rows = payments(small, [1, 2, 4, 20, 90]).select("account", "id", "at", "amount")
    measures = {"total": low.total("amount")}
    found = match_pattern(rows, FRAUD, by="account", time="at", key="id", per="row", labelled="role", measures=measures)
    assert found.columns == ["account", "match_id", "id", "at", "amount", "role", "total"]
    assert collected(found.select("match_id", "id", "role", "total")) == [
        (0, 0, "low", 7), (0, 1, "low", 7), (0, 2, "low", 7), (0, 4, "high", 7)
    ]  # fmt: skip


def test_rows_of_one_time_follow_each_other_by_their_order_and_key(small):
    rows = payments(small, [1, 90, 1]).selectExpr("id", "account", f"timestamp'{BEGIN:%Y-%m-%d}' AS at", "amount")
    pattern = low.then(high)
    by_key = match_pattern(rows, pattern, by="account", time="at", key="id")
    assert collected(by_key) == [("x", 0)]
    by_amount = match_pattern(rows, pattern, by="account", time="at", order="amount", key="id")
    assert collected(by_amount) == [("x", 2)]


def test_times_are_compared_as_moments_where_clocks_are_set_back(small):
    rows = payments(small, [1, 1]).selectExpr(
        "id",
        "account",
        "at",
        "timestamp_seconds(1792888200 + id * 3600) AS due",  # twice 02:30 in Berlin
    )
    later = label("later", field("due") > rows_of("start").last("due"))
    small.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        measures = {"due": rows_of().greatest("due")}
        found = match_pattern(rows, start.then(later), by="account", time="at", key="id", measures=measures)
        assert collected(found.selectExpr("id", "unix_seconds(due)")) == [(0, 1792891800)]
    finally:
        small.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_row_without_a_time_is_in_no_match(small):
    rows = payments(small, [1, 2, 90]).selectExpr("id", "account", "IF(id = 1, NULL, at) AS at", "amount")
    assert collected(match_pattern(rows, low.then(high), by="account", time="at", key="id")) == [("x", 0)]


start = label("start")


def test_a_pattern_that_sees_too_much_ends_with_an_error_of_its_own(small):
    either = start | label("other", rows_of("start").total("amount") != 1)
    pattern = either.zero_or_more().then(label("end", field("id") == 17)).within("1 day")
    rows = payments(small, [2**n for n in range(18)])
    with pytest.raises(PatternTooWide, match=r"in more than \d+ states"), described("view frauds"):
        match_pattern(rows, pattern, by="account", time="at", key="id").collect()


def test_a_total_that_no_column_holds_is_refused(small):
    rows = payments(small, [1, 2]).selectExpr("account", "id", "at", f"{2**62} AS huge")
    pattern = start.times(2)
    with pytest.raises(UnsupportedValue, match="64 bits"), described("view totals"):
        match_pattern(
            rows, pattern, by="account", time="at", key="id", measures={"total": start.total("huge")}
        ).collect()


table = sa.Table(
    "payments", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("account", sa.Text),
    sa.Column("at", sa.DateTime(timezone=True)), sa.Column("amount", sa.Numeric(18, 2)), sa.Column("size", sa.Double),
    sa.Column("note", sa.Text), sa.Column("local", sa.DateTime),
)  # fmt: skip
TABLES = {"payments": Table.from_changelog(table, topic="payments")}


def planned(small, *, then=lambda found: found, pattern=FRAUD, **given):
    def frauds(payments):
        asked = {"by": "account", "time": "at", "key": "id", **given}
        return then(match_pattern(payments, pattern, **asked))

    declared = view(by="account", key="id", tables=TABLES)(frauds)
    return view_columns(small, ProjectionGroup("patterns", [declared]))["frauds"]


def test_a_view_of_matches_is_planned(small):
    assert list(planned(small, measures={"large_id": high.last("id")})) == ["account", "id", "large_id"]


def test_matches_are_numbered_and_grouped_like_other_rows_of_a_partition(small):
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def numbered(found):
        return found.withColumn("nth", F.row_number().over(Window.partitionBy("account").orderBy("id")))

    assert list(planned(small, then=numbered)) == ["account", "id", "nth"]

    def counted(payments):
        found = match_pattern(payments, FRAUD, by="account", time="at")
        return found.groupBy("account").agg(F.count("*").alias("matches"))

    declared = view(by="account", tables=TABLES)(counted)
    found = view_columns(small, ProjectionGroup("patterns", [declared]))["counted"]
    assert list(found)[:2] == ["account", "matches"]


def test_several_matches_of_a_partition_need_a_key(small):
    def matches(payments):
        return match_pattern(payments, FRAUD, by="account", time="at")

    declared = view(by="account", tables=TABLES)(matches)
    with pytest.raises(InvalidDefinition, match="several rows of one group: match_pattern"):
        view_columns(small, ProjectionGroup("patterns", [declared]))


REACHES = {
    "long enough": (FRAUD.skip_to_next_row(), "10 seconds", None),
    "too short": (FRAUD.skip_to_next_row(), "9 seconds", "looks 10 seconds away, and a reach of 9 seconds"),
    "matches that follow matches": (FRAUD, "1 day", "looks at rows of any time"),
    "the row before": (
        low.then(label("up", field("amount") > previous("amount"))).within("1 second").skip_to_next_row(), "1 day",
        "looks at rows of any time"),
    "no bound": (low.times(3).skip_to_next_row(), "1 day", "looks at rows of any time"),
}  # fmt: skip


@each_row("case", REACHES)
def test_a_view_that_forgets_rows_has_no_pattern_to_which_they_count(small, case):
    pattern, length, words = REACHES[case]

    def frauds(payments):
        return match_pattern(payments, pattern, by="account", time="at", measures={"began": rows_of().first("at")})

    declared = view(by="account", key="id", tables=TABLES, reach=Reach(length, on="began"))(frauds)
    group = ProjectionGroup("patterns", [declared])
    if words is None:
        assert "began" in view_columns(small, group)["frauds"]
    else:
        with pytest.raises(InvalidDefinition, match=words):
            view_columns(small, group)


def test_a_view_may_match_within_parts_of_its_partitions(small):
    def per_note(payments):
        return match_pattern(payments, FRAUD, by=("account", "note"), time="at", key="id")

    declared = view(by="account", key=("note", "id"), tables=TABLES)(per_note)
    found = view_columns(small, ProjectionGroup("patterns", [declared]))["per_note"]
    assert list(found) == ["account", "note", "id"]


REFUSED = {
    "a column that is not there": ({"time": "paid"}, "no column 'paid'"),
    "a condition on a column that is not there": (
        {"pattern": label("a", field("price") > 1)}, "no column 'price'"),
    "the row before, of a column that is not there": (
        {"pattern": label("a", field("amount") > previous("price"))}, "no column 'price'"),
    "a measure of a column that is not there": ({"measures": {"x": low.last("price")}}, "no column 'price'"),
    "a measure of a label that is not there": (
        {"measures": {"x": rows_of("huge").last("id")}}, "names label 'huge'"),
    "what is no measure": ({"measures": {"x": 3}}, "measure 'x' is 3"),
    "a time that is a text": ({"time": "note"}, "'note' of the rows is string"),
    "a total of floats": ({"measures": {"x": low.total("size")}}, "floating-point"),
    "a total of floats in a condition": (
        {"pattern": low.then(label("a", low.total("size") > 1))}, "floating-point"),
    "a total of texts": ({"measures": {"x": low.total("note")}}, "values of kind text"),
    "a text against a number": (
        {"pattern": low.then(label("a", field("note") > low.last("amount")))}, "kind text"),
    "a constant of another kind": ({"pattern": low.then(label("a", low.last("amount") > "x"))}, "kind number"),
    "a plain comparison of two kinds": ({"pattern": label("a", field("amount") == "x")}, "cannot be compared"),
    "a column twice": ({"measures": {"id": low.last("id")}}, "column 'id' twice"),
    "neither matches nor rows": ({"per": "day"}, "per 'day'"),
    "an order that two rows may share": (
        {"key": "note", "measures": {"id": low.first("id")}}, "row_number over rows of which two may be equal"),
    "partitions of another column": (
        {"by": "note", "measures": {"account": low.first("account")}}, "a window over rows of several partitions"),
    "no partition": ({"by": ()}, "without columns of partitions"),
    "a pattern without a bound": ({"pattern": low.one_or_more()}, "any number of rows"),
    "what is no pattern": ({"pattern": field("amount") > 1}, "is no step of a pattern"),
    "another partition than matched": (
        {"then": lambda found: found.withColumn("account", found.id.cast("string"))}, "another value for 'account'"),
    "a Python function of batches": (
        {"then": lambda found: found.mapInArrow(lambda batches: batches, found.schema)},
        "a Python function of batches"),
    "a Python function of groups, with the marks of a match": (
        {"then": lambda found: found.groupBy("account").applyInArrow(lambda rows: rows, found.schema)},
        "FlatMapGroupsInArrow, of which nothing shows"),
}  # fmt: skip


@each_row("case", REFUSED)
def test_a_view_that_cannot_match_is_refused_when_it_is_planned(small, case):
    given, words = REFUSED[case]
    refused(lambda: planned(small, **given), words)
