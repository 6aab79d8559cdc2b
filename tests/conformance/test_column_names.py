"""Columns are in whatever case a captured table has them in, in tables, views and keys, wherever views are kept."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from projections import ProjectionGroup, Table, sql_view, view
from projections import field as column
from projections.errors import InvalidDefinition
from projections.testing.memory_log import ChangeWriter, MemoryLog
from projections.testing.trial import ViewTrial

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


@view(key="orderId")
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


# As a database of twenty years has them; the views' names are those of `key=`.
LEGACY = sa.Table(
    "Bestellungen",
    sa.MetaData(),
    sa.Column("Bestell-Nr.", sa.BigInteger, primary_key=True, key="number"),
    sa.Column("customerId", sa.BigInteger, key="customer_id"),
    sa.Column("Order Date", sa.Date, key="ordered_on"),
    sa.Column("Größe (cm)", sa.Numeric(10, 2), key="size"),
    sa.Column("the_net_amount_that_was_agreed_upon_with_sales", sa.BigInteger, key="net"),
    sa.Column("NET", sa.BigInteger, key="gross"),  # a name that another column has in views
    sa.Column('it\'s "`quoted`", a.b', sa.Text, key="remark"),
)
NAMES = tuple(column.key for column in LEGACY.columns)


class Base(DeclarativeBase):
    pass


legacy = Table.from_changelog(LEGACY, topic="legacy.public.Bestellungen", null_if_absent=["remark"])


def records_in(log, topic):
    return [json.loads(record) for pair in log.records(topic) for record in pair if record]


def test_the_records_have_the_names_of_the_source_whatever_the_views_have():
    log = MemoryLog()
    row = dict.fromkeys(NAMES) | {"number": 7, "gross": 4}
    ChangeWriter(log).put(legacy, row)
    key, change = records_in(log, legacy.topic)
    assert key == {"Bestell-Nr.": 7}
    assert change["after"] == {column.name: row[column.key] for column in LEGACY.columns}


def test_other_names_of_the_same_columns_are_another_definition():
    renamed = Table.from_changelog(captured("name"), topic=legacy.topic)
    column = sa.Column("nombre", sa.Text, key="name")
    again = sa.Table("it", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), column)
    assert renamed.columns == Table.from_changelog(again, topic=legacy.topic).columns
    assert renamed.signature() != Table.from_changelog(again, topic=legacy.topic).signature()


def captured(*names):
    columns = (sa.Column(name, sa.Text) for name in names)
    return sa.Table("it", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), *columns)


NO_NAMES = ("customer name", "1st", "_name", "naïve", "a" * 41, "a-b", 'a"b', "a.b", "a`b")


def test_a_column_that_is_no_name_in_every_store_is_refused_with_a_line_that_helps():
    for name in NO_NAMES:
        with pytest.raises(InvalidDefinition, match="is not a usable name") as refused:
            Table.from_changelog(captured(name), topic="shop.public.it")
        remedy = refused.value.remedy
        assert remedy.startswith("give it one of at most 40 letters, digits and underscores: Column(")
        line = remedy.partition(": ")[2].replace("…", "sa.Text").replace("Column(", "sa.Column(")
        table = captured()
        table.append_column(eval(line, {"sa": sa}))
        assert Table.from_changelog(table, topic="shop.public.it").record_names == {table.columns.keys()[1]: name}


def test_an_attribute_is_the_name_in_views_and_its_column_the_one_in_records():
    class Party(Base):
        __tablename__ = "party"
        id: Mapped[int] = mapped_column("Party ID", primary_key=True)
        family_name: Mapped[str | None] = mapped_column("Nachname")

    party = Table.from_changelog(Party, topic="legacy.public.party")
    assert (party.key, list(party.columns)) == (("id",), ["id", "family_name"])
    assert party.record_names == {"id": "Party ID", "family_name": "Nachname"}


def test_an_attribute_that_is_no_name_in_every_store_is_refused_with_the_line_to_write():
    class Odd(Base):
        __tablename__ = "odd"
        id: Mapped[int] = mapped_column(primary_key=True)
        größe: Mapped[int]

    with pytest.raises(InvalidDefinition, match="column 'größe' is not a usable name") as refused:
        Table.from_changelog(Odd, topic="shop.public.odd")
    assert refused.value.remedy.endswith(": grosse: Mapped[…] = mapped_column('größe')")


def test_names_that_are_null_if_absent_are_those_of_views():
    for name in ("customerId", "Order Date", "number"):
        with pytest.raises(InvalidDefinition, match="is no nullable column"):
            Table.from_changelog(LEGACY, topic=legacy.topic, null_if_absent=[name])


def test_columns_of_one_name_in_avro_are_refused_where_the_topic_is_avro():
    columns = (sa.Column(name, sa.Text, key=key) for name, key in (("a b", "one"), ("a-b", "two")))
    table = sa.Table("it", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), *columns)
    Table.from_changelog(table, topic="shop.public.it")
    with pytest.raises(InvalidDefinition, match="columns 'a b' and 'a-b' of table "):
        Table.from_changelog(table, topic="shop.public.it", encoding="avro")


def test_columns_that_differ_in_case_alone_are_refused():
    with pytest.raises(InvalidDefinition, match="columns 'Name' and 'nAme' differ in case alone"):
        Table.from_changelog(captured("Name", "nAme"), topic="shop.public.it")
