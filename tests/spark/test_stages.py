"""Queries that no one view can keep up to date are cut into stages: which these are, and what is refused."""

from __future__ import annotations

import pandas as pd
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from structlog.testing import capture_logs

from projections import Environment, ProjectionGroup, explain, open_runner, rebuild, sql_view, view
from projections.errors import InvalidDefinition
from projections.spark.views.view_functions import view_columns
from projections.stores.behind_rows import rows_behind
from projections.stores.explaining import drawn
from projections.stores.opening import opened
from projections.testing.memory_log import ChangeWriter, MemoryLog
from projections.testing.trial import ViewTrial
from tests.conformance.join_views import NAMED
from tests.rows import each_row

orders, customers = NAMED["orders"], NAMED["customers"]


def stages(small, text, tables=NAMED):
    """The key and the partition of each stage, by name."""
    declared = sql_view("some", text, tables=tables)
    view_columns(small, ProjectionGroup("cut", [declared]))
    return {stage.name: (stage.key, stage.by) for stage in declared.stages}


CUT = {
    "a group of joined rows, whichever table comes first": (
        "SELECT c.region_id, sum(o.amount) AS total FROM customers c, orders o WHERE o.customer_id = c.id GROUP BY 1",
        {"some_rows": (("id",), ()), "some": (("region_id",), ("region_id",))}),
    "a group without its key, by an expression": (
        "SELECT max(id) AS last FROM orders GROUP BY customer_id % 2",
        {"some_rows": (("id",), ()), "some": (("groupingexpression",), ("groupingexpression",))}),
    "all rows": (
        "SELECT count(*) AS n FROM orders",
        {"some_rows": (("id",), ()), "some": (("all_rows",), ("all_rows",))}),
    "a group of groups": (
        "SELECT n, count(*) AS times FROM (SELECT count(*) AS n FROM orders GROUP BY customer_id) GROUP BY n",
        {"some_rows": (("customer_id",), ("customer_id",)), "some": (("n",), ("n",))}),
    "rows that others refer to": (
        "SELECT id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)",
        {"some_rows": (("customer_id",), ("customer_id",)), "some": (("id",), ())}),
    "a join of columns that are no key": (
        "SELECT o.id, c.id AS c FROM orders o JOIN customers c ON o.seller_id = c.region_id",
        {"some": (("id", "c"), ("_by_seller_id",))}),
    "a join by one of two foreign keys": (
        "SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON o.customer_id = c.id AND c.region_id = 1"
        " OR c.id IN (o.seller_id)",
        {"some": (("id",), ())}),
    "a full join of tables of one key": (
        "SELECT coalesce(c.id, p.id, e.id) AS id FROM customers c FULL JOIN profiles p ON c.id = p.id"
        " FULL JOIN employees e ON coalesce(c.id, p.id) = e.id",
        {"some": (("id",), ("id",))}),
    "a join by an expression": (
        "SELECT o.id, c.id AS c FROM orders o JOIN customers c ON o.amount % 10 = c.region_id",
        {"some_rows": (("id",), ()), "some": (("id", "c"), ("_by_value",))}),
    "a full join": (
        "SELECT o.id FROM orders o FULL JOIN customers c ON o.customer_id = c.id",
        {"some": (("id", "id_"), ("_by_customer_id",))}),
    "the name of the key for another column": (
        "SELECT c.full_name AS id FROM orders o JOIN customers c ON o.customer_id = c.id", {"some": (("id_",), ())}),
    "totals": (
        "SELECT amount, count(*) AS n FROM orders GROUP BY ROLLUP (amount)",
        {"some_rows": (("pos", "id"), ("id",)),
         "some": (("amount", "spark_grouping_id"), ("amount", "spark_grouping_id"))}),
    "whether rows exist that are equal": (
        "SELECT id, EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id) AS buys FROM customers c",
        {"some_rows": (("customer_id",), ("customer_id",)), "some": (("id",), ())}),
    "the first row of a subquery, by what that does not select": (
        "SELECT id, (SELECT o.amount FROM orders o WHERE o.seller_id = c.id ORDER BY o.id LIMIT 1) AS first"
        " FROM customers c",
        {"some_rows": (("id",), ("seller_id",)), "some": (("id", "id_"), ("id",))}),
    "rows from a place on": (
        "SELECT id FROM orders ORDER BY amount, id OFFSET 2",
        {"some_rows": (("id",), ()), "some": (("id",), ("_by_all_rows",))}),
    "a group by a constant": (
        "SELECT 'all' AS k, count(*) AS n FROM orders GROUP BY k",
        {"some_rows": (("id",), ()), "some": (("groupingexpression",), ("groupingexpression",))}),
    "a join with values": (
        "SELECT x, count(*) AS n FROM orders CROSS JOIN (VALUES (1), (2)) v(x) GROUP BY x",
        {"some_rows": (("pos", "id"), ("id",)), "some": (("x",), ("x",))}),
    "stacked rows": ("SELECT id, stack(2, amount, 'a', seller_id) AS (x, y) FROM orders",
        {"some": (("pos", "id"), ("id",))}),
    "items of a list": (
        "SELECT id, explode(array(amount, customer_id)) AS x FROM orders", {"some": (("pos", "id"), ("id",))}),
    "a session": (
        "SELECT count(*) AS n, s.start FROM (SELECT session_window(set_time, '1 hour') AS s FROM (SELECT"
        " timestamp_micros(amount) AS set_time FROM orders)) GROUP BY s",
        {"some_rows": (("id",), ()), "some": (("s_start", "s_end"), ("_by_all_rows",))}),
    "a name of ours": ("SELECT count(*) AS all_rows FROM orders",
        {"some_rows": (("id",), ()), "some": (("all_rows_",), ("all_rows_",))}),
    "a join with the one row of a group": (
        "SELECT o.id FROM orders o CROSS JOIN (SELECT avg(amount) AS a FROM orders) m WHERE o.amount > m.a",
        {"some_rows": (("id",), ()), "some_rows2": (("id",), ()), "some_rows3": (("all_rows",), ("all_rows",)),
         "some": (("id",), ())}),
    "the first rows": (
        "SELECT id, amount FROM orders ORDER BY amount DESC LIMIT 2",
        {"some_rows": (("id",), ()), "some": (("id",), ("_by_all_rows",))}),
    "a value of all rows": (
        "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)",
        {"some_rows": (("id",), ()), "some_rows2": (("all_rows",), ("all_rows",)), "some_rows3": (("id",), ()),
         "some": (("id",), ())}),
    "a number within a partition": (
        "SELECT id, row_number() OVER (PARTITION BY customer_id ORDER BY amount) AS n FROM orders",
        {"some": (("id",), ("_by_customer_id",))}),
    "a union": (
        "SELECT id, amount FROM orders UNION ALL SELECT id, region_id FROM customers",
        {"some_rows": (("id",), ()), "some_rows2": (("id",), ()),
         "some": (("part", "row_key_1"), ("row_key_1",))}),
    "a query of WITH that is read twice": (
        "WITH o AS (SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id)"
        " SELECT a.customer_id FROM o a JOIN o b ON a.customer_id = b.customer_id",
        {"some_rows": (("customer_id",), ("customer_id",)), "some_rows2": (("customer_id",), ("customer_id",)),
         "some": (("customer_id",), ())}),
}  # fmt: skip


@each_row(("text", "expected"), CUT.values(), ids=CUT)
def test_a_query_is_cut_where_rows_are_brought_together(small, text, expected):
    assert stages(small, text) == expected


def test_a_query_that_one_view_answers_is_not_cut(small):
    text = "SELECT o.id, c.full_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id"
    assert stages(small, text) == {"some": (("id",), ())}


REFUSED = {
    "a query of WITH that reads itself": (
        "WITH RECURSIVE r AS (SELECT id FROM orders UNION ALL SELECT r.id FROM r) SELECT id FROM r", "Union", "select"),
    "EXISTS by an inequality as a value": (
        "SELECT id, EXISTS (SELECT 1 FROM orders o WHERE o.customer_id > c.id) AS buys FROM customers c",
        "EXISTS by an inequality", "in WHERE"),
    "IN of a constant, in OR": (
        "SELECT id FROM orders WHERE amount > 1 OR 2 IN (SELECT region_id FROM customers)", "by no column", "in WHERE"),
    "IN as a value": (
        "SELECT id, region_id IN (SELECT o.amount FROM orders o WHERE o.customer_id = c.id) AS x FROM customers c",
        "IN as a value, which is null where c.region_id is null, and false in Spark", "EXISTS"),
    "NOT IN as a value": (
        "SELECT id, region_id NOT IN (SELECT amount FROM orders) AS x FROM customers", "NOT IN as a value", "EXISTS"),
    "the first rows of a subquery, in any order": (
        "SELECT c.id, x.id AS o FROM customers c, LATERAL (SELECT id FROM orders o WHERE o.seller_id = c.id LIMIT 2) x",
        "without an order", "ORDER BY"),
    "the start of a session of single rows": (
        "SELECT session_window(timestamp_micros(amount), '1 hour').start AS s, count(*) AS n FROM orders GROUP BY s",
        "session_window for single rows", "GROUP BY bidder, session_window"),
    "a session that WITH names, of single rows": (
        "WITH w AS (SELECT id, session_window(timestamp_micros(amount), '1 hour') AS s FROM orders)"
        " SELECT a.id, b.s.end AS e FROM w a JOIN w b ON a.id = b.id", "session_window for single rows", "GROUP BY"),
    "a session that nothing groups": (
        "SELECT id, session_window(timestamp_micros(amount), '1 hour') AS s FROM orders", "single rows", "GROUP BY"),
    "several different values for each row": (
        "SELECT count(DISTINCT customer_id) AS a, count(DISTINCT amount) AS b FROM orders o"
        " WHERE o.amount >= (SELECT max(p.amount) FROM orders p WHERE p.id = o.id)", "several rows", "GROUP BY"),
    "a limit of ordered rows": (
        "SELECT id, (SELECT max(amount) FROM orders) AS m FROM (SELECT * FROM orders ORDER BY amount) LIMIT 2",
        "a subquery orders", "where LIMIT is"),
    "rows of no table": (
        "SELECT x, count(id) AS n FROM (VALUES (1), (2)) v(x) LEFT JOIN orders ON amount > x GROUP BY x", "no table",
        "keep the rows of the tables"),
    "values of no rows": ("SELECT (SELECT max(id) FROM orders) AS id FROM range(3)", "rows of no table", "a table"),
    "no rows at all": ("SELECT id FROM orders LIMIT 0", "rows of no table", "a table"),
    "a name twice": ("SELECT max(id) AS a, min(id) AS A FROM orders", "a column name twice", "of its own"),
    "a subquery among groups": (
        "SELECT amount, (SELECT max(id) FROM customers) AS m, count(*) AS n FROM orders GROUP BY amount",
        "a subquery in a group", "or join it"),
    "a random value": ("SELECT count(*) AS n FROM orders WHERE rand() > 0.5", "a random value", "let an event"),
    "a table that no part reads": ("SELECT count(*) AS n FROM orders WHERE false", "rows of no table", "a table"),
}  # fmt: skip


@each_row(("text", "message", "remedy"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_cut_is_refused_with_what_to_write(small, text, message, remedy):
    with pytest.raises(InvalidDefinition, match=message) as refused:
        stages(small, text)
    assert remedy in refused.value.remedy


def test_readings_of_one_table_have_names_that_no_other_table_has(small):
    tables = {"orders": orders, "orders_2": customers}
    text = (
        "WITH w AS (SELECT * FROM orders) SELECT count(*) AS n FROM w a JOIN w b ON a.seller_id = b.id JOIN orders_2 z"
    )
    declared = sql_view("some", f"{text} ON a.customer_id = z.id", tables=tables)
    view_columns(small, ProjectionGroup("cut", [declared]))
    assert list(declared.stages[0].tables) == ["orders", "orders_3", "orders_2"]


def test_another_view_that_is_called_as_a_stage_is_refused(small):
    other = sql_view("days_rows", "SELECT id FROM customers", tables=NAMED)
    days = sql_view("days", "SELECT count(*) AS n FROM orders", tables=NAMED)
    with pytest.raises(InvalidDefinition, match="has two views 'days_rows'"):
        view_columns(small, ProjectionGroup("cut", [other, days]))


def test_a_function_is_cut_as_a_query_is_and_has_the_key_that_it_declares(small):
    def both(orders, customers):
        ours = customers.withColumnRenamed("id", "c")
        return orders.join(ours, orders.seller_id == ours.region_id).select("seller_id", "id", "c")

    declared = view(key="id")(both)
    with pytest.raises(InvalidDefinition, match="rows that its key, id, may not tell apart"):
        view_columns(small, ProjectionGroup("cut", [declared]))


def test_functions_in_python_stay_in_a_query_that_is_cut(small, tmp_path):
    more = F.udf(lambda number: None if number is None else number + 1, "bigint")

    @F.pandas_udf("bigint")
    def less(numbers: pd.Series) -> pd.Series:
        return numbers - 1

    @view(key="id", tables={"customers": customers, "orders": orders})
    def buyers(customers, orders):
        sold = orders.select(less("seller_id").alias("of"))
        own = customers.select("id", more("region_id").alias("next"))
        return own.join(sold, own.next == sold.of, "left_semi")

    with ViewTrial(small, ProjectionGroup("cut_python", [buyers]), tmp_path) as trial:
        for number in (1, 2):
            trial.put(customers, {"id": number, "full_name": "Ann", "region_id": number})
        trial.put(orders, {"id": 1, "seller_id": 3, "amount": 1})
        trial.check()
        assert trial.rows("buyers") == [{"id": 1, "next": 2}]
        trial.put(orders, {"id": 1, "seller_id": 4, "amount": 1})
        trial.check()
        assert trial.rows("buyers") == [{"id": 2, "next": 3}]


def test_all_rows_are_computed_up_to_a_number_of_them(small, tmp_path):
    def group(most):
        view = sql_view("numbered", "SELECT id, row_number() OVER (ORDER BY amount) AS n FROM orders", tables=NAMED)
        return ProjectionGroup("few", [view], most_rows=most)

    with opened(f"sqlite:///{tmp_path}/few.db") as store:
        store.prepare()
        environment = Environment(small, small, store, MemoryLog())
        changes = ChangeWriter(environment.log)
        for number in range(3):
            changes.put(orders, {"id": number, "amount": number})
        with pytest.raises(InvalidDefinition, match="computes 3 rows whenever one changes, more than 2"):
            rebuild(environment, group(2))
        with capture_logs() as logs:
            rebuild(environment, group(3))
        assert [one["stage"] for one in logs if one["log_level"] == "warning"] == ["numbered"]
        changes.put(orders, {"id": 3, "amount": 0})
        with open_runner(environment, group(3)) as runner, pytest.raises(InvalidDefinition, match="computes 4 rows"):
            runner.catch_up()


def test_a_function_is_cut_as_a_query_is_and_names_the_key_of_its_rows(small):
    @view(key="id", tables=NAMED)
    def first_of_each(orders):
        number = F.row_number().over(Window.partitionBy("customer_id").orderBy("amount"))
        return orders.withColumn("n", number).where("n <= 2")

    @view(key="region_id", tables=NAMED)
    def by_region(orders, customers):
        joined = orders.join(customers, orders.customer_id == customers.id)
        return joined.groupBy("region_id").agg(F.sum("amount").alias("total"))

    @view(key="amount", tables=NAMED)
    def by_amount(orders):
        return orders.select("id", "amount")

    view_columns(small, ProjectionGroup("cut", [first_of_each, by_region]))
    assert [(stage.name, stage.key) for stage in first_of_each.stages] == [("first_of_each", ("id",))]
    assert [stage.name for stage in by_region.stages] == ["by_region_rows", "by_region"]
    with pytest.raises(InvalidDefinition, match="the key amount, and not that of its rows") as refused:
        view_columns(small, ProjectionGroup("cut", [by_amount]))
    assert refused.value.remedy == "name the key of its rows: id"


DRAWN = """\
some: computed for rows of one region_id. 1 rows by region_id
│  last batch: 1 reached, 1 rows read, 1 changed
└─ by region_id: some_rows: computed for each row of orders. 2 rows by id
   │  last batch: 1 reached, 2 rows read, 1 changed
   ├─ orders (topic shop.public.orders) by id
   └─ customers (topic shop.public.customers) by id = orders.customer_id"""


def test_the_rows_behind_a_row_are_found_through_the_stages_which_are_drawn_without_spark(local):
    text = "SELECT c.region_id, count(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY 1"

    def group():
        return ProjectionGroup("cut", [sql_view("some", text, tables=NAMED)])

    changes = ChangeWriter(local.log)
    changes.put(customers, {"id": 7, "full_name": "Ann", "region_id": 3})
    changes.put(orders, {"id": 1, "customer_id": 7, "amount": 5})
    rebuild(local, group())
    # It knows the stages from the build alone.
    found = rows_behind(local.store, group(), 1, "some", {"region_id": "3"})
    assert [row.table for row in found] == ["some", "some_rows", "orders", "customers"]
    with open_runner(local, group()) as runner:
        changes.put(orders, {"id": 2, "customer_id": 7, "amount": 6})
        runner.catch_up()
    assert "\n".join(drawn(explain(local.store, group(), "some"))) == DRAWN
