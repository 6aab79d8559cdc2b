"""Which rows a view looks at: it is accepted along its references, and refused beyond them when it is planned."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from projections import ProjectionGroup, view
from projections.declaring.views import Reference
from projections.spark.views.view_functions import view_columns
from tests.captured import captured
from tests.errors import refused
from tests.rows import each_row

orders = captured("orders", "customer_id", "payer_id", "place_a", "place_b", "amount", tags=sa.Text)
customers = captured("customers", "region_id", "name")
profiles = captured("profiles", "name")
regions = captured("regions", "name")
places = captured("places", "name", key=("a", "b"))
invoices = captured("invoices", "customer_id", "amount")

REFERENCES = (
    Reference("orders", ("customer_id",), "customers"),
    Reference("orders", ("customer_id",), "profiles"),
    Reference("orders", ("payer_id",), "customers"),
    Reference("orders", ("place_a", "place_b"), "places"),
    Reference("customers", ("region_id",), "regions"),
    Reference("orders", ("id",), "invoices"),
)


def compared_in(text):
    """The references whose columns a text names, and those to tables that it does not read."""
    if "payer_id" not in text:
        left_out = "payer_id"
    elif "customer_id" not in text:
        left_out = "customer_id"
    else:
        return REFERENCES
    return tuple(one for one in REFERENCES if (one.columns, one.target) != ((left_out,), "customers"))


TABLES = {
    "orders": orders, "customers": customers, "profiles": profiles, "regions": regions, "places": places,
    "invoices": invoices,
}  # fmt: skip


def planned(small, text):
    """The columns of a view in SQL that takes all tables, and leaves alone those that it does not name."""

    def chosen(orders, customers, profiles, regions, places, invoices):
        frames = (orders, customers, profiles, regions, places, invoices)
        return orders.sparkSession.sql(text, **dict(zip(TABLES, frames, strict=True)))

    declared = replace(view(key="id", tables=TABLES)(chosen), declared=compared_in(text))
    return view_columns(small, ProjectionGroup("lineage", [declared]))["chosen"]


ALONG = {
    "inner": "SELECT o.id FROM {orders} o JOIN {customers} c ON o.customer_id = c.id",
    "turned round": "SELECT o.id FROM {customers} c JOIN {orders} o ON c.id = o.customer_id",
    "left": "SELECT o.id, c.name FROM {orders} o LEFT JOIN {customers} c ON o.customer_id = c.id",
    "right, turned round": "SELECT o.id FROM {customers} c RIGHT JOIN {orders} o ON c.id = o.customer_id",
    "in the WHERE clause": "SELECT o.id FROM {orders} o, {customers} c WHERE o.customer_id = c.id",
    "of three in the WHERE clause": "SELECT o.id FROM {orders} o, {customers} c, {regions} r"
    " WHERE o.customer_id = c.id AND c.region_id = r.id",
    "two keys": "SELECT o.id FROM {orders} o JOIN {customers} c ON o.customer_id = c.id"
    " LEFT JOIN {customers} p ON o.payer_id = p.id",
    "one or another": "SELECT o.id FROM {orders} o LEFT ANTI JOIN {customers} c"
    " ON o.customer_id = c.id AND c.region_id = 1 OR c.id = o.payer_id",
    "one of two": "SELECT o.id FROM {orders} o LEFT SEMI JOIN {customers} c ON c.id IN (o.customer_id, o.payer_id)",
    "one for want of the other": "SELECT o.id FROM {orders} o JOIN {customers} c"
    " ON coalesce(o.payer_id, o.customer_id) = c.id",
    "one by case": "SELECT o.id FROM {orders} o JOIN {customers} c"
    " ON CASE WHEN o.amount > 1 THEN o.customer_id ELSE o.payer_id END = c.id",
    "several columns": "SELECT o.id FROM {orders} o JOIN {places} p ON o.place_b = p.b AND o.place_a = p.a",
    "with more conditions": "SELECT o.id FROM {orders} o LEFT JOIN {customers} c"
    " ON o.customer_id = c.id AND c.name = 'a' AND o.amount > c.region_id",
    "further on": "SELECT o.id, r.name FROM {orders} o LEFT JOIN ({customers} c JOIN {regions} r ON c.region_id = r.id)"
    " ON o.customer_id = c.id",
    "by an equal value": "SELECT o.id FROM {orders} o JOIN {customers} c ON o.customer_id = c.id"
    " JOIN {profiles} p ON c.id = p.id",
    "by an equal value that may be missing": "SELECT o.id FROM {orders} o LEFT JOIN {customers} c"
    " ON o.customer_id = c.id LEFT JOIN {profiles} p ON c.id = p.id",
    "profiles that have every key": "SELECT o.id FROM {orders} o LEFT JOIN"
    " (SELECT p.id, c.name FROM {profiles} p LEFT JOIN {customers} c ON p.id = c.id) x ON o.customer_id = x.id",
    "with itself by its key": "SELECT o.id FROM {orders} o JOIN {orders} b ON o.id = b.id",
    "a filter below": "SELECT o.id FROM (SELECT * FROM {orders} WHERE amount > 1) o"
    " JOIN (SELECT id AS k FROM {customers} WHERE name = 'a') c ON o.customer_id = c.k",
    "common expressions": "WITH n AS (SELECT id AS k, name FROM {customers}) SELECT o.id, a.name, b.name AS other"
    " FROM {orders} o LEFT JOIN n a ON o.customer_id = a.k LEFT JOIN n b ON o.payer_id = b.k",
    "a list of values": "SELECT o.id, v.w FROM {orders} o LEFT JOIN (VALUES (1, 'one')) v(n, w) ON o.amount = v.n",
    "exists": "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {customers} c WHERE c.id = o.customer_id)",
    "not exists": "SELECT o.id FROM {orders} o WHERE NOT EXISTS"
    " (SELECT 1 FROM {customers} c JOIN {regions} r ON c.region_id = r.id WHERE c.id = o.customer_id AND r.name = 'a')",
    "exists as a value": "SELECT o.id, EXISTS (SELECT 1 FROM {customers} c WHERE c.id = o.customer_id) AS x"
    " FROM {orders} o",
    "in": "SELECT o.id FROM {orders} o WHERE o.customer_id IN (SELECT id FROM {customers} WHERE name = 'a')",
    "in, or": "SELECT o.id FROM {orders} o WHERE o.amount = 1 OR o.customer_id IN (SELECT id FROM {customers})",
    "in, several columns": "SELECT o.id FROM {orders} o WHERE (place_a, place_b) IN (SELECT a, b FROM {places})",
    "in as a value that is not null": "SELECT o.id, o.id IN (SELECT id FROM {invoices}) AS x FROM {orders} o",
    "in as a value, false for null": "SELECT o.id, coalesce(o.payer_id IN (SELECT id FROM {customers}), false) AS x"
    " FROM {orders} o",
    "not in of what is not null": "SELECT o.id FROM {orders} o"
    " WHERE o.payer_id IS NOT NULL AND o.payer_id NOT IN (SELECT id FROM {customers})",
    "not in of a key that a filter has looked at": "SELECT o.id FROM {orders} o LEFT JOIN {customers} c"
    " ON o.customer_id = c.id WHERE c.id IS NOT NULL AND c.id NOT IN (SELECT id FROM {profiles})",
    "null-safe equality with a key": "SELECT o.id FROM {orders} o LEFT JOIN {customers} c ON c.id <=> o.customer_id",
    "exists, of a semi join": "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {customers} c"
    " LEFT SEMI JOIN {regions} r ON c.region_id = r.id AND c.id = o.customer_id)",
    "not in of a key": "SELECT o.id FROM {orders} o WHERE o.id NOT IN (SELECT id FROM {invoices})",
    "a scalar": "SELECT o.id, (SELECT name FROM {customers} c WHERE c.id = o.customer_id) AS name FROM {orders} o",
    "lateral": "SELECT o.id, x.name FROM {orders} o,"
    " LATERAL (SELECT name FROM {customers} c WHERE c.id = o.customer_id) x",
    "a union of parts": "SELECT id, 1 AS n FROM {orders} WHERE amount = 1"
    " UNION ALL SELECT id, 2 FROM {orders} WHERE amount <> 1",
    "one row of many": "SELECT id, pos FROM {orders}"
    " LATERAL VIEW posexplode(split(tags, ',')) t AS pos, x WHERE pos = 0",
    "rows without duplicates": "SELECT DISTINCT id, amount FROM {orders}",
    "a list of values without duplicates": "SELECT id FROM {orders} WHERE payer_id IN"
    " (SELECT DISTINCT id FROM {customers})",
}  # fmt: skip


@each_row("text", ALONG.values(), ids=ALONG)
def test_a_view_that_looks_along_its_references_is_accepted(small, text):
    assert "id" in planned(small, text)


NO_REFERENCE = "along no reference"
BEYOND = {
    "by another column": (
        "SELECT o.id FROM {orders} o JOIN {customers} c ON o.amount = c.id", NO_REFERENCE, "key"),
    "by no key": ("SELECT o.id FROM {orders} o JOIN {customers} c ON o.customer_id = c.region_id", NO_REFERENCE, "key"),
    "by a computed key": (
        "SELECT o.id FROM {orders} o LEFT JOIN {customers} c ON o.customer_id + 1 = c.id", NO_REFERENCE, "key"),
    "by a part of a key": (
        "SELECT o.id FROM {orders} o LEFT JOIN {places} p ON o.place_a = p.a", NO_REFERENCE, "whole key"),
    "by mixed parts of a key": (
        "SELECT o.id FROM {orders} o LEFT JOIN {places} p ON o.place_a = p.b AND o.place_b = p.a", NO_REFERENCE, "key"),
    "by less": ("SELECT o.id FROM {orders} o JOIN {customers} c ON o.customer_id < c.id", NO_REFERENCE, "key"),
    "by one or anything": (
        "SELECT o.id FROM {orders} o LEFT JOIN {customers} c ON o.customer_id = c.id OR c.name = 'a'",
        NO_REFERENCE, "key"),
    "by one or a constant": (
        "SELECT o.id FROM {orders} o LEFT JOIN {customers} c ON coalesce(o.customer_id, 1) = c.id",
        NO_REFERENCE, "key"),
    "against its direction": (
        "SELECT o.id FROM {orders} o LEFT SEMI JOIN {invoices} i ON i.customer_id = o.customer_id",
        NO_REFERENCE, "key"),
    "from a value that may be missing": (
        "SELECT o.id FROM {orders} o LEFT JOIN {profiles} p ON o.customer_id = p.id"
        " LEFT JOIN {invoices} i ON i.id = p.id", NO_REFERENCE, "key"),
    "with itself": ("SELECT o.id FROM {orders} o LEFT JOIN {orders} b ON o.amount = b.id", NO_REFERENCE, "key"),
    "everything": ("SELECT o.id FROM {orders} o CROSS JOIN {customers} c", "orders with customers along no", "key"),
    "everything on the left": ("SELECT o.id FROM {orders} o LEFT JOIN {customers} c ON true", NO_REFERENCE, "key"),
    "customers without orders": (
        "SELECT c.id FROM {customers} c LEFT ANTI JOIN {orders} o ON o.customer_id = c.id", NO_REFERENCE, "key"),
    "rows that nothing refers to": (
        "SELECT o.id FROM {orders} o FULL JOIN {customers} c ON o.customer_id = c.id",
        NO_REFERENCE, "key"),
    "rows of the other side": (
        "SELECT o.id FROM {customers} c LEFT JOIN {orders} o ON o.customer_id = c.id",
        NO_REFERENCE, "key"),
    "exists anywhere": (
        "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {customers})", "EXISTS over rows of customers",
        "EXISTS (SELECT 1 FROM … t WHERE t.key = foreign_key)"),
    "not exists by less": (
        "SELECT o.id FROM {orders} o WHERE NOT EXISTS (SELECT 1 FROM {customers} c WHERE c.region_id = o.customer_id)",
        "EXISTS over rows of customers", "foreign key"),
    "exists under a reference and anywhere": (
        "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {customers} c CROSS JOIN {regions} r"
        " WHERE c.id = o.customer_id)", NO_REFERENCE, "key"),
    "in another column": (
        "SELECT o.id FROM {orders} o WHERE o.customer_id IN (SELECT region_id FROM {customers})",
        "IN over rows of customers", "EXISTS"),
    "exists under the condition of an outer join": (
        "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {customers} c LEFT JOIN {regions} r"
        " ON c.region_id = r.id AND c.id = o.customer_id)", "EXISTS over rows of customers, regions", "foreign key"),
    "exists under the condition of an anti join": (
        "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {customers} c LEFT ANTI JOIN {regions} r"
        " ON c.region_id = r.id AND c.id = o.customer_id)", "EXISTS over rows of customers", "foreign key"),
    "exists under the condition of one part of a union": (
        "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM {orders} a WHERE a.id = o.id AND a.amount > 5"
        " UNION ALL SELECT 1 FROM {orders} b WHERE b.amount > 7)", "EXISTS over rows of orders", "foreign key"),
    "exists where both are null": (
        "SELECT o.id FROM {orders} o WHERE EXISTS (SELECT 1 FROM (SELECT CASE WHEN name = 'a' THEN id END AS id"
        " FROM {customers}) c WHERE c.id <=> o.customer_id)", "EXISTS over rows of customers", "foreign key"),
    "rows where both are null": (
        "SELECT o.id, c.name FROM {orders} o LEFT JOIN (SELECT CASE WHEN name = 'a' THEN id END AS id, name"
        " FROM {customers}) c ON c.id <=> o.customer_id", NO_REFERENCE, "key"),
    "not in of a key that may be left out": (
        "SELECT id FROM (SELECT id, CASE WHEN amount > 1 THEN id END AS k FROM {orders})"
        " WHERE k NOT IN (SELECT id FROM {invoices})", "NOT IN whose answer is null", "NOT EXISTS"),
    "not in a list of keys that may be left out": (
        "SELECT o.id FROM {orders} o WHERE o.id NOT IN (SELECT CASE WHEN amount > 1 THEN id END FROM {invoices})",
        "NOT IN whose answer is null", "NOT EXISTS"),
    "not in": (
        "SELECT o.id FROM {orders} o WHERE o.customer_id NOT IN (SELECT id FROM {customers})",
        "NOT IN whose answer is null where o.customer_id is null", "NOT EXISTS (SELECT 1 FROM"),
    "not in, several columns": (
        "SELECT o.id FROM {orders} o WHERE (place_a, place_b) NOT IN (SELECT a, b FROM {places})",
        "NOT IN whose answer is null", "NOT EXISTS"),
    "in as a value": (
        "SELECT o.id, o.customer_id IN (SELECT id FROM {customers}) AS x FROM {orders} o",
        "IN whose answer is null where o.customer_id is null", "write EXISTS (SELECT 1 FROM"),
    "in within a case": (
        "SELECT o.id FROM {orders} o"
        " WHERE CASE WHEN o.customer_id IN (SELECT id FROM {customers}) THEN false ELSE true END",
        "IN whose answer is null", "EXISTS"),
    "in that is unknown": (
        "SELECT o.id FROM {orders} o WHERE (o.customer_id IN (SELECT id FROM {customers})) IS NULL",
        "IN whose answer is null", "EXISTS"),
    "a scalar from anywhere": (
        "SELECT o.id, (SELECT name FROM {customers}) AS name FROM {orders} o", "a subquery over rows of customers",
        "foreign key"),
    "lateral from anywhere": (
        "SELECT o.id FROM {orders} o, LATERAL (SELECT name FROM {customers}) x", NO_REFERENCE, "key"),
    "exploded rows": (
        "SELECT id, x FROM {orders} LATERAL VIEW explode(split(tags, ',')) t AS x",
        "several rows of one key: explode(split(", "instead of key=, and the number of the item in key"),
    "a union of shared keys": (
        "SELECT id FROM {orders} UNION ALL SELECT id FROM {orders}",
        "several rows of one key: a union of orders and orders", "posexplode"),
    "a union of two tables": (
        "SELECT id FROM {orders} UNION ALL SELECT id FROM {customers}", "a union of rows of orders, customers",
        "along references"),
    "a union with values": (
        "SELECT id FROM {orders} UNION ALL SELECT 1", "a union of rows of orders, no table", "references"),
    "other rows than its own": (
        "SELECT id FROM {customers}", "one row a row of customers", "return one row for each of orders"),
    "no rows of its own": ("SELECT 1 AS id", "one row a row of no table", "return one row for each of orders"),
    "another key": (
        "SELECT customer_id AS id FROM {orders}", "another value for its key 'id' than its table has",
        "as it is there"),
    "a computed key": ("SELECT id + 1 AS id FROM {orders}", "another value for its key 'id'", "as it is there"),
    "rows of both": (
        "SELECT id FROM {orders} INTERSECT SELECT id FROM {customers}", "Intersect", "join along references"),
    "rows of one only": (
        "SELECT id FROM {orders} EXCEPT SELECT id FROM {customers}", "Except", "join along references"),
    "rows without their key": (
        "SELECT o.id FROM {orders} o LEFT JOIN (SELECT DISTINCT name FROM {customers}) c ON o.tags = c.name",
        "rows without duplicates, and without their key", "select the key"),
}  # fmt: skip


@each_row(("text", "words", "remedy"), BEYOND.values(), ids=BEYOND)
def test_a_view_that_looks_further_is_refused_with_what_to_write_instead(small, text, words, remedy):
    error = refused(lambda: planned(small, text), words, remedy)
    assert error.place == "view chosen"
    assert "\n" not in error.message
