"""Joins of every kind in SQL, which Spark and DuckDB read alike."""

from __future__ import annotations

from hypothesis import strategies as st

from projections import ProjectionGroup, sql_view
from tests.captured import captured
from tests.conformance.followed_views import by_duckdb, followed, histories_of

orders = captured("orders", "customer_id", "country_name", "city_name", "seller_id", "amount")
customers = captured("customers", "region_id", "full_name")
regions = captured("regions", "planet_id", "region_name")
planets = captured("planets", "star_id", "planet_name")
stars = captured("stars", "star_name")
profiles = captured("profiles", "note_name")
places = captured("places", "zip", key=("country_name", "city_name"))
employees = captured("employees", "boss_id", "staff_name")
visits = captured("visits", "grade", key=("customer_id", "region_id"))
TABLES = (orders, customers, regions, planets, stars, profiles, places, employees, visits)
NAMED = {table.topic.rpartition(".")[2]: table for table in TABLES} | {"bosses": employees}  # as the SQL calls them


def order(id, customer=1, amount=10):
    place = {"country_name": "NO", "city_name": "Oslo"}
    return {"id": id, "customer_id": customer, **place, "seller_id": 1, "amount": amount}


def customer(id, region=1, name="Ann"):
    return {"id": id, "region_id": region, "full_name": name}


BESIDE = "SELECT o.id, c.id AS customer, o.amount, c.full_name FROM {} o {} JOIN customers c ON o.customer_id = c.id"
LARGE = "(SELECT * FROM orders WHERE amount > 1)"
SQL = {
    "inner_join": "SELECT o.id, o.amount, c.full_name FROM orders o JOIN customers c ON o.customer_id = c.id",
    "left_join": "SELECT o.id, o.amount, c.full_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id",
    "right_join": BESIDE.format("orders", "RIGHT"),
    "full_join": BESIDE.format("orders", "FULL"),
    "full_join_of_some": BESIDE.format(LARGE, "FULL"),
    "one_to_one": """
        SELECT c.id, p.id AS profile, c.full_name, p.note_name FROM customers c FULL JOIN profiles p ON c.id = p.id""",
    "composite_reference": """
        SELECT o.id, p.zip FROM orders o LEFT JOIN places p
        ON o.country_name = p.country_name AND o.city_name = p.city_name""",
    "composite_full": """
        SELECT o.id, p.country_name, p.city_name, o.amount FROM orders o FULL JOIN places p
        ON o.country_name = p.country_name AND o.city_name = p.city_name""",
    "of_the_same_table": """
        SELECT e.id, e.staff_name, b.staff_name AS boss_name FROM employees e LEFT JOIN bosses b ON e.boss_id = b.id""",
    "many_to_many": """
        SELECT v.customer_id, v.region_id, v.grade, c.full_name, r.region_name FROM visits v
        JOIN customers c ON v.customer_id = c.id LEFT JOIN regions r ON v.region_id = r.id""",
    "star_of_four": """
        SELECT o.id, c.full_name, p.zip, e.staff_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id
        LEFT JOIN places p ON o.country_name = p.country_name AND o.city_name = p.city_name
        JOIN employees e ON o.seller_id = e.id""",
    "chain_of_five": """
        SELECT o.id, o.amount, r.id AS region, s.star_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id
        LEFT JOIN regions r ON c.region_id = r.id LEFT JOIN planets p ON r.planet_id = p.id
        LEFT JOIN stars s ON p.star_id = s.id""",
    "per_customer": """
        SELECT customer_id, count(*) AS n, sum(amount) AS total, min(amount) AS least, max(amount) AS most,
            count(DISTINCT seller_id) AS sellers FROM orders GROUP BY customer_id""",
    "per_region": "SELECT region, count(*) AS n, sum(amount) AS total FROM chain_of_five GROUP BY region",
    "customers_with_totals": """
        SELECT c.id, c.full_name, t.total FROM customers c LEFT JOIN per_customer t ON c.id = t.customer_id""",
}
KEYS = {"left_join": "id", "full_join": ("id", "customer")}  # the two that are kept without a plan of Spark's too
VIEWS = {}
for name, text in SQL.items():
    VIEWS[name] = sql_view(name, text, tables=NAMED | VIEWS, key=KEYS.get(name))
left_join, full_join = VIEWS["left_join"], VIEWS["full_join"]

NUMBERS, NAMES = st.integers(0, 2), st.sampled_from("ab")


def of(column):
    return NAMES if column.endswith("name") else NUMBERS


GROUP = ProjectionGroup("joins", list(VIEWS.values()))
FOLLOWED = followed(
    by_duckdb(GROUP, SQL, NAMED, tables=TABLES),
    histories_of(TABLES, lambda column: st.none() | of(column) | of(column), key=of, changes=12, batches=6),
    6,
)
