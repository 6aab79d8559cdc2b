"""Columns are in whatever case a captured table has them in, in tables, views and keys, wherever views are kept."""

from __future__ import annotations

from contextlib import closing

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import Environment, ProjectionGroup, Table, open_runner, read_views, rebuild, sql_view, view
from projections import field as column
from projections.errors import InvalidDefinition
from projections.spark.session import small_batch_session
from projections.tablestore.postgres import PostgresTableStore
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from projections.testing.trial import ViewTrial
from tests import lakehouse

ORDERS = sa.Table(
    "Orders",
    sa.MetaData(),
    sa.Column("orderId", sa.BigInteger, primary_key=True),
    sa.Column("CustomerID", sa.BigInteger),
    sa.Column("Amount", sa.Numeric(10, 2)),
    sa.Column("paidAt", sa.DateTime),
    sa.Column("tagNames", sa.ARRAY(sa.Text)),
)
CUSTOMERS = sa.Table(
    "Customers", sa.MetaData(), sa.Column("Id", sa.BigInteger, primary_key=True), sa.Column("fullName", sa.Text)
)
orders = Table.from_changelog(ORDERS, topic="shop.public.Orders")
customers = Table.from_changelog(CUSTOMERS, topic="shop.public.Customers")
named = customers.where(~column("fullName").is_null())


@view(key="orderId", references={"CustomerID": "customers"})
def bills(orders, customers):
    joined = orders.join(customers, orders["CustomerID"] == customers["Id"], "left")
    return joined.select("orderId", "CustomerID", "fullName", "Amount", F.size("tagNames").alias("tagCount"))


@view(by="CustomerID")
def spent(bills):
    return bills.groupBy("CustomerID").agg(F.sum("Amount").alias("totalSpent"), F.count("*").alias("orderCount"))


@view(key="Id")
def known(named):
    return named.select("Id", F.upper("fullName").alias("FULL_NAME"))


told = sql_view(
    "told",
    "SELECT o.orderid AS orderId, c.FullName AS fullName FROM orders o LEFT JOIN customers c ON c.ID = o.customerid",
    tables={"orders": orders, "customers": customers},
)
of_a_view = sql_view(
    "of_a_view",
    "SELECT b.orderId, c.fullName AS again FROM bills b LEFT JOIN customers c ON b.CustomerID = c.Id",
    tables={"bills": bills, "customers": customers},
)
by_name = sql_view(
    "by_name", "SELECT fullName, count(*) AS number FROM bills GROUP BY fullName", tables={"bills": bills}
)
GROUP = ProjectionGroup("camel", [bills, spent, known, told, of_a_view, by_name])


def first(put):
    put(customers, {"Id": 1, "fullName": "Ann"})
    put(customers, {"Id": 2, "fullName": None})
    put(orders, {"orderId": 7, "CustomerID": 1, "Amount": "1.50", "paidAt": "2024-01-02T03:04:05Z", "tagNames": ["a"]})
    put(orders, {"orderId": 8, "CustomerID": 2, "Amount": "2.00", "tagNames": None})


def second(put):
    put(customers, {"Id": 1, "fullName": "Åsa"})
    put(orders, {"orderId": 8, "CustomerID": 1, "Amount": "3.00", "tagNames": []})


def assert_shown(rows):
    assert [(r["orderId"], r["CustomerID"], r["fullName"], r["tagCount"]) for r in rows("bills")] == [
        (7, 1, "Åsa", 1),
        (8, 1, "Åsa", 0),
    ]
    assert [(r["CustomerID"], str(r["totalSpent"]), r["orderCount"]) for r in rows("spent")] == [(1, "4.50", 2)]
    assert rows("known") == [{"Id": 1, "FULL_NAME": "ÅSA"}]
    assert rows("told") == [{"orderId": 7, "fullName": "Åsa"}, {"orderId": 8, "fullName": "Åsa"}]
    assert rows("of_a_view") == [{"orderId": 7, "again": "Åsa"}, {"orderId": 8, "again": "Åsa"}]
    assert rows("by_name") == [{"fullName": "Åsa", "number": 2}]


def test_views_of_columns_in_mixed_case_are_kept_live_as_they_are_rebuilt(spark, tmp_path):
    with ViewTrial(spark, GROUP, tmp_path) as trial:
        first(trial.put)
        trial.check()
        second(trial.put)
        trial.check()
        assert_shown(trial.rows)


def follow(environment):
    changes = ChangeWriter(environment.log)
    first(changes.put)
    rebuild(environment, GROUP)
    second(changes.put)
    with open_runner(environment, GROUP) as runner:
        runner.catch_up()


@pytest.mark.faults
def test_columns_in_mixed_case_are_alike_in_postgresql(spark, database):
    with closing(PostgresTableStore(database())) as store:
        store.prepare()
        follow(Environment(spark, small_batch_session(spark), store, MemoryLog()))

        def rows(name):
            with store.looking() as connection:
                found = connection.execute(sa.text(f'SELECT * FROM "{name}" ORDER BY 1')).mappings()
                return [dict(row) for row in found]

        assert_shown(rows)


@pytest.mark.faults
def test_columns_in_mixed_case_are_alike_in_delta_lake(spark, tmp_path):
    environment = lakehouse.opened(spark, tmp_path)
    follow(environment)
    frames = read_views(spark, environment.store.place, group=GROUP.name)
    assert_shown(lambda name: [row.asDict() for row in frames[name].orderBy(frames[name].columns[0]).collect()])


def captured(*names):
    columns = (sa.Column(name, sa.Text) for name in names)
    return sa.Table("it", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), *columns)


@pytest.mark.parametrize("name", ["customer name", "1st", "_name", "naïve", "a" * 41, "a-b", 'a"b', "a.b", "a`b"])
def test_a_column_that_is_no_name_in_every_store_is_refused(name):
    with pytest.raises(InvalidDefinition, match="is not a usable name") as refused:
        Table.from_changelog(captured(name), topic="shop.public.it")
    assert refused.value.remedy == "use letters, digits and underscores, a letter first, at most 40"


def test_columns_that_differ_in_case_alone_are_refused():
    with pytest.raises(InvalidDefinition, match="columns 'Name' and 'nAme' differ in case alone"):
        Table.from_changelog(captured("Name", "nAme"), topic="shop.public.it")
