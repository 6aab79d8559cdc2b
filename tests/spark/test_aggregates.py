"""Aggregates: which are accepted, and which are kept by parts."""

from __future__ import annotations

import re

import pandas as pd
import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, view
from projections.declaring.columns import hidden
from projections.errors import InvalidDefinition
from projections.planning.aggregates import EXACT, EXTREMES, ORDERED, REFUSED, RIGHT
from projections.planning.plans import analysed_plan, operators
from projections.spark.scala import items
from projections.spark.session import small_batch_session
from projections.spark.views.partials import stored_columns
from projections.spark.views.view_functions import view_columns
from tests.rows import each_row

SALES = sa.Table(
    "sales", sa.MetaData(), sa.Column("shop", sa.Integer, primary_key=True),
    sa.Column("id", sa.Integer, primary_key=True), sa.Column("town", sa.Text),
    sa.Column("name", sa.Text), sa.Column("grams", sa.BigInteger),
    sa.Column("price", sa.Numeric(12, 2)), sa.Column("size", sa.Double), sa.Column("paid", sa.Boolean),
    sa.Column("at", sa.DateTime),
)  # fmt: skip
sales = Table.from_changelog(SALES, topic="sales")


def planned(small, aggregate, rows=lambda sales: sales):
    column = F.expr(aggregate) if isinstance(aggregate, str) else aggregate

    @view(by="town", tables={"sales": sales})
    def of_town(sales):
        return rows(sales).groupBy("town").agg(column.alias("x"))

    return view_columns(small, ProjectionGroup("sales", [of_town]))["of_town"]


def refused(small, aggregate, **rows):
    with pytest.raises(InvalidDefinition) as caught:
        planned(small, aggregate, **rows)
    return caught.value


def classes(plan):
    """The classes of the aggregates of a plan, its subqueries included."""
    for node in operators(plan):
        for expression in node.expressions:
            yield from of_expression(expression)


def of_expression(expression):
    if expression.kind == "AggregateExpression":
        yield expression.one("aggregateFunction").kind
    for child in expression.children:
        yield from of_expression(child)


def aggregates_of(small):
    """The classes of every aggregate function of SQL, found by planning the examples of its documentation."""
    registry = small._jsparkSession.sessionState().functionRegistry()
    infos = [registry.lookupFunction(name).get() for name in items(registry.listFunction())]
    for info in infos:
        if info.getGroup() != "agg_funcs":
            continue
        examples = re.findall(r"> (SELECT .*?);", info.getExamples(), re.DOTALL)
        found = {name for text in examples if "test_metric_view" not in text for name in planned_classes(small, text)}
        yield info.getName(), found or {info.getClassName().rpartition(".")[2]}


def planned_classes(small, text):
    return set(classes(analysed_plan(small.sql(text))))


def test_every_aggregate_of_spark_has_a_decision(small):
    decided = RIGHT | EXTREMES | EXACT.keys() | REFUSED.keys() | ORDERED.keys()
    undecided = {name: found - decided for name, found in aggregates_of(small) if found - decided}
    assert undecided == {}


def test_an_aggregate_has_one_decision():
    kinds = [RIGHT, EXTREMES, EXACT.keys(), REFUSED.keys(), ORDERED.keys()]
    assert sum(map(len, kinds)) == len(frozenset().union(*kinds))


@each_row(
    "sql",
    [
        "count(*)", "count(DISTINCT name)", "count_if(grams > 1)", "bool_and(paid)", "some(paid)", "bit_xor(grams)",
        "approx_count_distinct(name)", "percentile(size, 0.5)", "median(grams)", "regr_count(size, size)",
        "percentile_disc(0.5) WITHIN GROUP (ORDER BY size)", "count_min_sketch(name, 0.5D, 0.5D, 1)",
        "sum(grams)", "sum(price)", "avg(price)", "sum(CAST(size AS decimal(18, 2)))", "sum(grams) / 3", "max(name)",
        "min(at)", "max(size + 0D)", "try_sum(price)", "try_avg(CAST(grams AS int))",
        "array_join(sort_array(collect_list(name)), ',')", "array_sort(collect_set(struct(size + 0D, name)))",
        "aggregate(sort_array(collect_list(size + 0D)), 1D, (a, x) -> a * x)", "max(struct(size + 0D, name))",
        "sort_array(collect_list(CAST(price AS double)))", "max_by(size, struct(at, shop, id))",
        "max_by(size + 0D, struct(at, size + 0D))", "max(CAST(name AS string))",
        "max_by(name, struct(at, shop, id))", "max_by(name, struct(at, name))", "min_by(grams, grams)",
        "max_by(concat(name, 'x'), struct(at, struct(name)))",
        "max_by(struct(name, grams), struct(at, grams, name), 2)",
        "listagg(name, ',') WITHIN GROUP (ORDER BY at, name)", "listagg(name, ',') WITHIN GROUP (ORDER BY shop, id)",
        "string_agg(DISTINCT name, ',') WITHIN GROUP (ORDER BY name DESC)",
        "mode() WITHIN GROUP (ORDER BY name)",
    ],
)  # fmt: skip
def test_an_aggregate_whose_value_is_the_same_in_every_order_is_accepted(small, sql):
    assert "x" in planned(small, sql)


ZEROS, COLLATED = "0.0 and -0.0 are equal", "of texts that are equal in a collation"
CHANCE, FLOATS = "the order its rows come in", "of floating-point numbers, whose last digits depend on their order"


@each_row(
    ("sql", "words", "instead"),
    [
        ("first(name)", CHANCE, "min_by"), ("last_value(name)", CHANCE, "max_by"),
        ("any_value(name)", CHANCE, "min_by"),
        ("size(collect_list(name))", CHANCE, "sort_array"), ("array_join(collect_set(name), '')", CHANCE, "sort_array"),
        ("array_sort(collect_list(name), (a, b) -> length(a) - length(b))", CHANCE, "sort_array"),
        ("sort_array(transform(collect_list(name), (x, i) -> struct(i, x)))", CHANCE, "sort_array"),
        ("max_by(name, id)", CHANCE, "max_by(x, struct(at, x))"), ("min_by(name, struct(at, id))", CHANCE, "whole key"),
        ("max_by(name, at, 3)", CHANCE, "whole key"), ("max_by(name, struct(lower(name), at))", CHANCE, "order"),
        ("listagg(name, ',')", CHANCE, "WITHIN GROUP"), ("string_agg(DISTINCT name)", CHANCE, "WITHIN GROUP"),
        ("listagg(name, ',') WITHIN GROUP (ORDER BY at)", CHANCE, "ORDER BY x"),
        ("mode(name)", CHANCE, "mode() WITHIN GROUP"),
        ("percentile_approx(size, 0.5)", CHANCE, "percentile(x, 0.5)"),
        ("histogram_numeric(size, 5)", CHANCE, "width_bucket"), ("approx_top_k(name)", CHANCE, "group by the value"),
        ("hll_sketch_estimate(hll_sketch_agg(name))", CHANCE, "count(DISTINCT x)"),
        ("kll_sketch_agg_double(size)", CHANCE, "percentile(x, 0.5)"),
        ("sum(size)", FLOATS, "decimal"), ("1 + avg(CAST(grams AS float))", FLOATS, "decimal"),
        ("round(sum(size), 3)", FLOATS, "decimal"), ("stddev(grams)", FLOATS, "sum(x * x)"),
        ("corr(grams, grams)", FLOATS, "sum(x * y)"), ("regr_slope(grams, grams)", FLOATS, "sums of decimals"),
        ("max(size)", "0.0 and -0.0 are equal", "max(x + 0D)"), ("min(size + 1)", "0.0 and -0.0 are equal", "x + 0D"),
        ("max(array(size))", ZEROS, "zero"), ("min(struct(grams, size))", ZEROS, "zero"),
        ("max(named_struct('double', named_struct('x', CAST(size AS float))))", ZEROS, "zero"),
        ("sort_array(collect_list(size))", ZEROS, "collect_list(x + 0D)"),
        ("array_sort(array_agg(struct(at, size)))", ZEROS, "zero"), ("sort_array(collect_set(-size))", ZEROS, "zero"),
        ("max_by(size, size)", CHANCE, "whole key"), ("max_by(struct(at, size), struct(at, size))", CHANCE, "key"),
        ("CAST(max(name COLLATE UTF8_LCASE) AS string)", COLLATED, "COLLATE UTF8_BINARY"),
        ("CAST(min(struct(at, name COLLATE UNICODE_CI)).col2 AS string)", COLLATED, "COLLATE UTF8_BINARY"),
        ("CAST(array_join(sort_array(collect_list(name COLLATE UTF8_LCASE)), ',') AS string)", COLLATED, "UTF8_BINARY"),
        ("CAST(listagg(name COLLATE UTF8_LCASE, ',' COLLATE UTF8_LCASE) WITHIN GROUP (ORDER BY name COLLATE UTF8_LCASE)"
         " AS string)",
         CHANCE, "ORDER BY x"),
        ("try_sum(grams)", "whose overflow depends on", "decimal(28, 0)"),
        ("try_avg(CAST(price AS decimal(30, 2)))", "whose overflow depends on", "or avg"),
    ],
)  # fmt: skip
def test_an_aggregate_whose_value_follows_the_order_is_refused_with_another(small, sql, words, instead):
    told = refused(small, sql)
    assert words in told.message
    assert instead in told.remedy


def middle(values: pd.Series) -> float:
    return float(values.median())


def test_a_product_and_a_python_aggregate_are_refused(small):
    assert "product of floating-point numbers" in refused(small, F.product("grams")).message
    assert CHANCE in refused(small, F.pandas_udf(middle, "double")("grams")).message


def test_rows_that_are_exploded_are_not_told_apart_by_their_key(small):
    def words(sales):
        return sales.withColumn("name", F.explode(F.split("name", " ")))

    assert CHANCE in refused(small, "max_by(name, struct(at, shop, id))", rows=words).message
    assert "x" in planned(small, "max_by(name, struct(at, shop, id, name))", rows=words)


# ---- which group-by views are kept by partial aggregates, and which compute their groups whole


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
