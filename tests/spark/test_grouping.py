"""Which group-by views are kept by partial aggregates, and which compute their groups whole: told by the plan."""

from __future__ import annotations

import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, view
from projections.declaring.partials import hidden
from projections.spark.session import small_batch_session
from projections.spark.views.partials import stored_columns
from projections.spark.views.view_functions import view_columns
from tests.rows import each_row

PARCELS = sa.Table(
    "parcels", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("town", sa.Text),
    sa.Column("grams", sa.BigInteger), sa.Column("fee", sa.Numeric(30, 2)), sa.Column("size", sa.Double),
    sa.Column("sent", sa.DateTime(timezone=True)), sa.Column("tags", sa.Text),
)  # fmt: skip
parcels = Table.from_changelog(PARCELS, topic="parcels")


def kept(session, function):
    """The partial aggregates of a view by town, by their types."""

    @view(by="town", tables={"parcels": parcels})
    def by_town(parcels):
        return function(parcels)

    found = view_columns(session, ProjectionGroup("parcels", [by_town]))["by_town"]
    return {name: kind.ddl for name, kind in hidden(found).items()}


def of(*aggregates):
    """A view of the aggregates, which are SQL."""
    return lambda p: p.groupBy("town").agg(*(F.expr(a).alias(f"a{i}") for i, a in enumerate(aggregates)))


def test_sums_are_kept_as_wide_as_they_may_become(small):
    assert kept(small, of("count(*)", "sum(grams)", "avg(fee)")) == {
        "_rows": "bigint", "_count_0": "bigint", "_count_1": "bigint", "_sum_1": "decimal(38,0)",
        "_count_2": "bigint", "_sum_2": "decimal(38,2)",
    }  # fmt: skip


def test_extremes_are_kept_as_they_are(small):
    found = kept(small, of("min(sent)", "max(tags)"))
    assert [found["_min_0"], found["_max_1"]] == ["timestamp", "string"]


ROW_BY_ROW = {
    "a quotient": of("sum(grams) / count(*)"),
    "some values": of("sum(grams) FILTER (WHERE size > 1)"),
    "some rows": lambda p: of("max(kg)")(p.where("grams > 3").withColumn("kg", F.expr("grams div 1000"))),
    "a selection": lambda p: of("sum(grams)")(p.alias("p")).alias("q").selectExpr("q.town", "q.a0 + 1 AS more"),
    "exploded rows": lambda p: of("count(tag)")(p.select("town", F.explode(F.split("tags", ",")).alias("tag"))),
    "a Python function": lambda p: p.groupBy("town").agg(F.sum(F.udf(lambda g: g, "bigint")("grams")).alias("s")),
}


@each_row("function", ROW_BY_ROW.values(), ids=ROW_BY_ROW)
def test_partial_aggregates_are_kept_of(small, function):
    assert "_rows" in kept(small, function)


@each_row(
    "aggregate",
    [
        "percentile(size, 0.5)", "max(size + 0D)", "count(DISTINCT tags)", "bool_and(true)",
        "array_join(sort_array(collect_list(tags)), '')", "try_sum(CAST(grams AS int))",
        "count(tags, grams)", "max_by(tags, struct(grams, tags))",
    ],
)  # fmt: skip
def test_groups_are_computed_whole_of(small, aggregate):
    assert kept(small, of("sum(grams)", aggregate)) == {}


def test_groups_are_computed_whole_where_sums_overflow_in_silence(spark):
    silent = small_batch_session(spark)
    silent.conf.set("spark.sql.ansi.enabled", "false")
    assert kept(silent, of("sum(grams)")) == {}


OF_MORE_THAN_ROWS = {
    "having": lambda p: of("count(*)")(p).where("a0 > 1"),
    "without duplicates": lambda p: of("count(*)")(p.select("town", "tags").dropDuplicates()),
    "a subquery": lambda p: of("count(*)")(p.where("id IN (SELECT id FROM range(3))")),
}


@each_row("function", OF_MORE_THAN_ROWS.values(), ids=OF_MORE_THAN_ROWS)
def test_groups_are_computed_whole_by_a_function_with(small, function):
    assert kept(small, function) == {}


@each_row("order", [1, -1])
def test_a_mean_of_integers_is_the_same_in_every_order_of_rows_in_a_rebuild_too(small, order):
    @view(by="town", tables={"parcels": parcels})
    def by_town(parcels):
        return of("avg(grams)", "sum(grams)")(parcels)

    columns = view_columns(small, ProjectionGroup("parcels", [by_town]))["by_town"]
    grams = [2**53, *[1] * 999][::order]
    schema = ", ".join(f"{name} {kind.ddl}" for name, kind in parcels.columns.items())
    rows = [(number, "a", gram, None, None, None, None) for number, gram in enumerate(grams)]
    found = stored_columns(by_town, {"parcels": small.createDataFrame(rows, schema).coalesce(1)}, columns)
    assert found.select("a0", "a1").collect() == [(float(2**53 + 999) / 1000, 2**53 + 999)]
