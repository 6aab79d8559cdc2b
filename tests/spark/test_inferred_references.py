"""References that a view leaves out: the conditions of its plan show them, in whatever form they are written."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from pyspark.sql import functions as F

from eventstore import Aggregate, event
from projections import ProjectionGroup, Stream, Table, join_versions, sql_view, view
from projections.errors import InvalidDefinition
from projections.spark.views.view_functions import view_columns
from tests.conformance.join_views import NAMED
from tests.integration.payments import CUSTOMERS
from tests.rows import each_row

orders, customers, regions = (NAMED[name] for name in ("orders", "customers", "regions"))
BY_CUSTOMER = ["orders.customer_id → customers"]


def references_of(small, declared):
    """What a view's plan shows, in the order of the alphabet."""
    view_columns(small, ProjectionGroup("inferred", [declared]))
    (stage,) = declared.stages
    return sorted(map(str, stage.references))


SQL = {
    "USING": "SELECT o.id FROM (SELECT id, customer_id AS k FROM orders) o JOIN (SELECT id AS k FROM customers) c USING"
    " (k)",
    "an unqualified foreign key": "SELECT o.id FROM orders o JOIN customers c ON customer_id = c.id",
    "unqualified on both sides": "SELECT id FROM orders LEFT JOIN (SELECT id AS cid FROM customers) ON customer_id ="
    " cid",
    "parentheses": "SELECT o.id FROM orders o JOIN customers c ON ((o.customer_id) = ((c.id)))",
    "joins in parentheses": "SELECT o.id FROM (orders o JOIN customers c ON (o.customer_id = c.id))",
    "the whole in parentheses": "(SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.id)",
    "any case": "select O.ID from ORDERS o Join Customers C On o.CUSTOMER_ID = c.Id",
    "the other way round": "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id",
    "in WHERE": "SELECT o.id FROM orders o, customers c WHERE o.customer_id = c.id",
    "another condition": "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id = o.customer_id"
    " AND c.region_id = o.seller_id",
    "a join to a subquery": "SELECT o.id FROM orders o JOIN (SELECT id FROM customers) c ON o.customer_id = c.id",
    "a join of a subquery": "SELECT o.id FROM (SELECT * FROM orders) o JOIN customers c ON o.customer_id = c.id",
    "other names of columns": "SELECT o.id FROM orders o JOIN customers c(k, r, n) ON o.customer_id = c.k",
    "a query of WITH": "WITH c AS (SELECT * FROM customers) SELECT o.id FROM orders o JOIN c ON o.customer_id = c.id",
    "EXISTS": "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer_id)",
    "IN": "SELECT id FROM orders WHERE customer_id IN (SELECT c.id FROM customers c)",
    "a lateral subquery": "SELECT o.id FROM orders o, LATERAL (SELECT * FROM customers WHERE id = o.customer_id) c",
}


@each_row("form", SQL)
def test_sql_shows_the_foreign_key_in_any_form(small, form):
    assert references_of(small, sql_view("some", SQL[form], tables=NAMED, key="id")) == BY_CUSTOMER


FURTHER = {
    "one of two foreign keys": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id IN (o.customer_id, o.seller_id)",
        ["orders.customer_id → customers", "orders.seller_id → customers"]),
    "this or that one": (
        "SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON o.customer_id = c.id AND c.region_id = 1"
        " OR c.id = o.seller_id",
        ["orders.customer_id → customers", "orders.seller_id → customers"]),
    "either of two in one value": (
        "SELECT o.id FROM orders o JOIN customers c ON coalesce(o.customer_id, o.seller_id) = c.id",
        ["orders.customer_id → customers", "orders.seller_id → customers"]),
    "a key of two columns": (
        "SELECT id FROM orders JOIN places USING (city_name, country_name)",
        ["orders.country_name+city_name → places"]),
    "a key whose parts come from two tables that are joined": (
        "SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.id"
        " LEFT JOIN visits v ON v.customer_id = c.id AND v.region_id = o.seller_id",
        ["orders.customer_id → customers", "orders.customer_id+seller_id → visits"]),
    "one table through another": (
        "SELECT o.id, r.region_name FROM orders o LEFT JOIN (customers c JOIN regions r ON c.region_id = r.id)"
        " ON o.customer_id = c.id",
        ["customers.region_id → regions", "orders.customer_id → customers"]),
    "tables of one key, the farther one first": (
        "SELECT o.id FROM orders o JOIN (SELECT p.id FROM customers c JOIN profiles p ON c.id = p.id) x"
        " ON o.customer_id = x.id",
        ["customers.id → profiles", "orders.customer_id → customers"]),
}  # fmt: skip


@each_row("form", FURTHER)
def test_sql_shows_several_foreign_keys(small, form):
    text, shown = FURTHER[form]
    assert references_of(small, sql_view("some", text, tables=NAMED, key="id")) == shown


def test_a_function_shows_its_references_in_any_order_of_its_joins(small):
    @view(key="id")
    def by_region(orders, customers, regions):
        areas = regions.select(F.col("id").alias("region_id"), "region_name")
        people = areas.join(customers, "region_id").withColumnRenamed("id", "customer_id")
        return people.join(orders, "customer_id").select("id", "region_name")

    declared = replace(by_region)
    assert references_of(small, declared) == ["customers.region_id → regions", *BY_CUSTOMER]


class Transfer(Aggregate):
    @event
    class Made:
        payer_id: int
        payee_id: int
        at: datetime


TRANSFERS = {
    "transfers": Stream.from_events(Transfer, events=Transfer.Made, key="transfer_id", time="at"),
    "versions": Table.versions_of(CUSTOMERS, topic="customers"),
    "people": Table.from_changelog(CUSTOMERS, topic="customers"),
}


@view(key="transfer_id", tables=TRANSFERS)
def scores(transfers, versions, people):
    both = join_versions(transfers, versions, on="payer_id", take={"payer_score": "credit_score"})
    both = join_versions(both, versions, on="payee_id", how="left", take={"payee_score": "credit_score"})
    today = people.select(F.col("id").alias("payer_id"), F.col("note").alias("today"))
    return both.join(today, "payer_id").select("transfer_id", "payer_score", "payee_score", "today")


def test_joins_with_the_versions_of_rows_show_their_references(small):
    assert references_of(small, scores) == [
        "transfers.payee_id → versions",
        "transfers.payer_id → people",
        "transfers.payer_id → versions",
    ]


def test_a_table_that_no_join_reaches_is_refused(small):
    @view(key="id")
    def alone(orders, customers):
        return orders.select("id")

    with pytest.raises(InvalidDefinition, match="'customers', which it does not read") as caught:
        references_of(small, alone)
    assert "leave the parameter out" in caught.value.remedy
