"""Which rows a view looks at: along its references it is one stage, and beyond them several, or it is refused."""

from __future__ import annotations

import sqlalchemy as sa

from projections import ProjectionGroup, sql_view
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

TABLES = {
    "orders": orders, "customers": customers, "profiles": profiles, "regions": regions, "places": places,
    "invoices": invoices,
}  # fmt: skip
BY_CUSTOMER = ["orders.customer_id → customers"]


def planned(small, text):
    """The stages of a view in SQL with the key of its orders."""
    declared = sql_view("chosen", text, tables=TABLES, key="id")
    view_columns(small, ProjectionGroup("lineage", [declared]))
    return declared.stages


ALONG = {
    "inner": (
        "SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.id", BY_CUSTOMER),
    "turned round": (
        "SELECT o.id FROM customers c JOIN orders o ON c.id = o.customer_id", BY_CUSTOMER),
    "left": (
        "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id", BY_CUSTOMER),
    "right, turned round": (
        "SELECT o.id FROM customers c RIGHT JOIN orders o ON c.id = o.customer_id", BY_CUSTOMER),
    "in the WHERE clause": (
        "SELECT o.id FROM orders o, customers c WHERE o.customer_id = c.id", BY_CUSTOMER),
    "of three in the WHERE clause": (
        "SELECT o.id FROM orders o, customers c, regions r WHERE o.customer_id = c.id AND c.region_id = r.id",
        ["customers.region_id → regions", "orders.customer_id → customers"]),
    "two keys": (
        "SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.id LEFT JOIN customers p ON o.payer_id ="
        " p.id", ["orders.customer_id → customers", "orders.payer_id → customers"]),
    "one or another": (
        "SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON o.customer_id = c.id AND c.region_id = 1 OR c.id"
        " = o.payer_id", ["orders.customer_id → customers", "orders.payer_id → customers"]),
    "one of two": (
        "SELECT o.id FROM orders o LEFT SEMI JOIN customers c ON c.id IN (o.customer_id, o.payer_id)",
        ["orders.customer_id → customers", "orders.payer_id → customers"]),
    "one for want of the other": (
        "SELECT o.id FROM orders o JOIN customers c ON coalesce(o.payer_id, o.customer_id) = c.id",
        ["orders.customer_id → customers", "orders.payer_id → customers"]),
    "one by case": (
        "SELECT o.id FROM orders o JOIN customers c ON CASE WHEN o.amount > 1 THEN o.customer_id ELSE o.payer_id"
        " END = c.id", ["orders.customer_id → customers", "orders.payer_id → customers"]),
    "several columns": (
        "SELECT o.id FROM orders o JOIN places p ON o.place_b = p.b AND o.place_a = p.a",
        ["orders.place_a+place_b → places"]),
    "with more conditions": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer_id = c.id AND c.name = 'a' AND o.amount >"
        " c.region_id", BY_CUSTOMER),
    "further on": (
        "SELECT o.id, r.name FROM orders o LEFT JOIN (customers c JOIN regions r ON c.region_id = r.id) ON"
        " o.customer_id = c.id", ["customers.region_id → regions", "orders.customer_id → customers"]),
    "by an equal value": (
        "SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.id JOIN profiles p ON c.id = p.id",
        ["customers.id → profiles", "orders.customer_id → customers"]),
    "by an equal value that may be missing": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer_id = c.id LEFT JOIN profiles p ON c.id ="
        " p.id", ["customers.id → profiles", "orders.customer_id → customers"]),
    "profiles that have every key": (
        "SELECT o.id FROM orders o LEFT JOIN (SELECT p.id, c.name FROM profiles p LEFT JOIN customers c ON p.id ="
        " c.id) x ON o.customer_id = x.id", ["orders.customer_id → profiles", "profiles.id → customers"]),
    "with itself by its key": (
        "SELECT o.id FROM orders o JOIN orders b ON o.id = b.id", []),
    "a filter below": (
        "SELECT o.id FROM (SELECT * FROM orders WHERE amount > 1) o JOIN (SELECT id AS k FROM customers WHERE name"
        " = 'a') c ON o.customer_id = c.k", BY_CUSTOMER),
    "common expressions": (
        "WITH n AS (SELECT id AS k, name FROM customers) SELECT o.id, a.name, b.name AS other FROM orders o LEFT"
        " JOIN n a ON o.customer_id = a.k LEFT JOIN n b ON o.payer_id = b.k",
        ["orders.customer_id → customers", "orders.payer_id → customers_2"]),
    "a list of values": (
        "SELECT o.id, v.w FROM orders o LEFT JOIN (VALUES (1, 'one')) v(n, w) ON o.amount = v.n", []),
    "exists": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer_id)", BY_CUSTOMER),
    "not exists": (
        "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c JOIN regions r ON c.region_id ="
        " r.id WHERE c.id = o.customer_id AND r.name = 'a')",
        ["customers.region_id → regions", "orders.customer_id → customers"]),
    "exists as a value": (
        "SELECT o.id, EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer_id) AS x FROM orders o", BY_CUSTOMER),
    "in": (
        "SELECT o.id FROM orders o WHERE o.customer_id IN (SELECT id FROM customers WHERE name = 'a')", BY_CUSTOMER),
    "in, or": (
        "SELECT o.id FROM orders o WHERE o.amount = 1 OR o.customer_id IN (SELECT id FROM customers)", BY_CUSTOMER),
    "in, several columns": (
        "SELECT o.id FROM orders o WHERE (place_a, place_b) IN (SELECT a, b FROM places)",
        ["orders.place_a+place_b → places"]),
    "in as a value, false for null": (
        "SELECT o.id, coalesce(o.payer_id IN (SELECT id FROM customers), false) AS x FROM orders o",
        ["orders.payer_id → customers"]),
    "not in of what is not null": (
        "SELECT o.id FROM orders o WHERE o.payer_id IS NOT NULL AND o.payer_id NOT IN (SELECT id FROM customers)",
        ["orders.payer_id → customers"]),
    "not in of a key that a filter has looked at": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer_id = c.id WHERE c.id IS NOT NULL AND c.id"
        " NOT IN (SELECT id FROM profiles)", ["customers.id → profiles", "orders.customer_id → customers"]),
    "null-safe equality with a key": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON c.id <=> o.customer_id", BY_CUSTOMER),
    "not in of a key": (
        "SELECT o.id FROM orders o WHERE o.id NOT IN (SELECT id FROM invoices)", ["orders.id → invoices"]),
    "a scalar": (
        "SELECT o.id, (SELECT name FROM customers c WHERE c.id = o.customer_id) AS name FROM orders o", BY_CUSTOMER),
    "lateral": (
        "SELECT o.id, x.name FROM orders o, LATERAL (SELECT name FROM customers c WHERE c.id = o.customer_id) x",
        BY_CUSTOMER),
    "rows without duplicates": (
        "SELECT DISTINCT id, amount FROM orders", []),
    "a list of values without duplicates": (
        "SELECT id FROM orders WHERE payer_id IN (SELECT DISTINCT id FROM customers)",
        ["orders.payer_id → customers"]),
    "by another column": (
        "SELECT o.id FROM orders o JOIN customers c ON o.amount = c.id", ["orders.amount → customers"]),
    "from a value that may be missing": (
        "SELECT o.id FROM orders o LEFT JOIN profiles p ON o.customer_id = p.id LEFT JOIN invoices i ON i.id = p.id",
        ["orders.customer_id → profiles", "profiles.id → invoices"]),
    "with itself": (
        "SELECT o.id FROM orders o LEFT JOIN orders b ON o.amount = b.id", ["orders.amount → orders_2"]),
}  # fmt: skip


@each_row(("text", "references"), ALONG.values(), ids=ALONG)
def test_a_view_that_looks_along_its_references_is_one_stage(small, text, references):
    (stage,) = planned(small, text)
    assert (sorted(map(str, stage.references)), stage.by) == (references, ())


BEYOND = {
    "by a computed key": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer_id + 1 = c.id", 2),
    "against its direction": (
        "SELECT o.id FROM orders o LEFT SEMI JOIN invoices i ON i.customer_id = o.customer_id", 2),
    "customers without orders": (
        "SELECT c.id FROM customers c LEFT ANTI JOIN orders o ON o.customer_id = c.id", 2),
    "not exists by less": (
        "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE c.region_id = o.customer_id)", 2),
    "exists under a reference and anywhere": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c CROSS JOIN regions r WHERE c.id ="
        " o.customer_id)", 4),
    "in another column": (
        "SELECT o.id FROM orders o WHERE o.customer_id IN (SELECT region_id FROM customers)", 2),
    "exists under the condition of an outer join": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c LEFT JOIN regions r ON c.region_id ="
        " r.id AND c.id = o.customer_id)", 5),
    "exists under the condition of an anti join": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c LEFT ANTI JOIN regions r ON c.region_id"
        " = r.id AND c.id = o.customer_id)", 5),
    "exists under the condition of one part of a union": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM orders a WHERE a.id = o.id AND a.amount > 5 UNION"
        " ALL SELECT 1 FROM orders b WHERE b.amount > 7)", 8),
    "exists where both are null": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM (SELECT CASE WHEN name = 'a' THEN id END AS id FROM"
        " customers) c WHERE c.id <=> o.customer_id)", 2),
    "not in a list of keys that may be left out": (
        "SELECT o.id FROM orders o WHERE o.id NOT IN (SELECT CASE WHEN amount > 1 THEN id END FROM invoices)", 3),
    "not in": (
        "SELECT o.id FROM orders o WHERE o.customer_id NOT IN (SELECT id FROM customers)", 3),
    "a union of two tables": (
        "SELECT id FROM orders UNION ALL SELECT id FROM customers", 3),
    "a union of parts": (
        "SELECT id, 1 AS n FROM orders WHERE amount = 1 UNION ALL SELECT id, 2 FROM orders WHERE amount <> 1", 3),
    "exists, of a semi join": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c LEFT SEMI JOIN regions r ON c.region_id"
        " = r.id AND c.id = o.customer_id)", 3),
}  # fmt: skip


@each_row(("text", "number"), BEYOND.values(), ids=BEYOND)
def test_a_view_that_looks_further_is_cut(small, text, number):
    assert len(planned(small, text)) == number


REFUSED = {
    "by no key": (
        "SELECT o.id FROM orders o JOIN customers c ON o.customer_id = c.region_id", "may not tell apart"),
    "by a part of a key": (
        "SELECT o.id FROM orders o LEFT JOIN places p ON o.place_a = p.a", "may not tell apart"),
    "by less": (
        "SELECT o.id FROM orders o JOIN customers c ON o.customer_id < c.id", "may not tell apart"),
    "by one or anything": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer_id = c.id OR c.name = 'a'",
        "may not tell apart"),
    "everything": (
        "SELECT o.id FROM orders o CROSS JOIN customers c", "may not tell apart"),
    "everything on the left": (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON true", "may not tell apart"),
    "rows where both are null": (
        "SELECT o.id, c.name FROM orders o LEFT JOIN (SELECT CASE WHEN name = 'a' THEN id END AS id, name FROM"
        " customers) c ON c.id <=> o.customer_id", "may not tell apart"),
    "lateral from anywhere": (
        "SELECT o.id FROM orders o, LATERAL (SELECT name FROM customers) x", "may not tell apart"),
    "exists anywhere": (
        "SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM customers)", "a subquery that may return several rows"),
    "a scalar from anywhere": (
        "SELECT o.id, (SELECT name FROM customers) AS name FROM orders o", "a subquery that may return several rows"),
    "in as a value": (
        "SELECT o.id, o.customer_id IN (SELECT id FROM customers) AS x FROM orders o",
        "IN as a value, which is null where o.customer_id is null"),
    "in within a case": (
        "SELECT o.id FROM orders o WHERE CASE WHEN o.customer_id IN (SELECT id FROM customers) THEN false ELSE"
        " true END", "IN as a value, which is null"),
    "in that is unknown": (
        "SELECT o.id FROM orders o WHERE (o.customer_id IN (SELECT id FROM customers)) IS NULL",
        "IN as a value, which is null"),
    "exploded rows": (
        "SELECT id, x FROM orders LATERAL VIEW explode(split(tags, ',')) t AS x",
        "several rows of one group: posexplode(split("),
    "a union with values": (
        "SELECT id FROM orders UNION ALL SELECT 1", "rows of no table"),
    "another key": (
        "SELECT customer_id AS id FROM orders", "the key id, and not that of its rows"),
    "a computed key": (
        "SELECT id + 1 AS id FROM orders", "the key id, and not that of its rows"),
}  # fmt: skip


@each_row(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_a_view_with_several_rows_of_a_key_or_with_another_key_is_refused(small, text, words):
    error = refused(lambda: planned(small, text), words)
    assert error.place == "view chosen"
    assert "\n" not in error.message
