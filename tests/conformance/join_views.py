"""Every kind of join as a view function and as SQL over the same names: an engine of its own runs the second."""

from __future__ import annotations

import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import ProjectionGroup, Table, sql_view, view


def captured(name, *columns, key=("id",)):
    """A table of integers and texts, those whose names end in `name`."""
    kinds = {c: sa.Text if c.endswith("name") else sa.BigInteger for c in (*key, *columns)}
    model = sa.Table(name, sa.MetaData(), *(sa.Column(c, kinds[c], primary_key=c in key) for c in kinds))
    return Table.from_changelog(model, topic=f"shop.public.{name}")


orders = captured("orders", "customer_id", "country_name", "city_name", "seller_id", "amount")
customers = captured("customers", "region_id", "full_name")
regions = captured("regions", "planet_id", "region_name")
planets = captured("planets", "star_id", "planet_name")
stars = captured("stars", "star_name")
profiles = captured("profiles", "note_name")
places = captured("places", "zip", key=("country_name", "city_name"))
employees = captured("employees", "boss_id", "staff_name")
bosses = employees
visits = captured("visits", "grade", key=("customer_id", "region_id"))
TABLES = (orders, customers, regions, planets, stars, profiles, places, employees, visits)
NAMED = {table.topic.rpartition(".")[2]: table for table in TABLES}  # as the SQL calls them

SQL = {}


def as_sql(text):
    """Keep the SQL form of a view."""

    def keep(declared):
        SQL[declared.name] = text
        return declared

    return keep


def named(frame, **columns):
    """Some columns of a table, under names of their own."""
    return frame.select(*(F.col(source).alias(name) for name, source in columns.items()))


@as_sql("SELECT o.id, o.amount, c.full_name FROM orders o JOIN customers c ON o.customer_id = c.id")
@view(key="id")
def inner_join(orders, customers):
    return orders.join(named(customers, customer_id="id", full_name="full_name"), "customer_id").select(
        "id", "amount", "full_name"
    )


@as_sql("SELECT o.id, o.amount, c.full_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id")
@view(key="id")
def left_join(orders, customers):
    return orders.join(named(customers, customer_id="id", full_name="full_name"), "customer_id", "left").select(
        "id", "amount", "full_name"
    )


def _beside(orders, customers, how):
    side = named(customers, customer="id", full_name="full_name")
    joined = orders.join(side, orders.customer_id == side.customer, how)
    return joined.select("id", "customer", "amount", "full_name")


_BESIDE = "SELECT o.id, c.id AS customer, o.amount, c.full_name FROM {} o {} JOIN customers c ON o.customer_id = c.id"


@as_sql(_BESIDE.format("orders", "RIGHT"))
@view(key=("id", "customer"))
def right_join(orders, customers):
    return _beside(orders, customers, "right")


@as_sql(_BESIDE.format("orders", "FULL"))
@view(key=("id", "customer"))
def full_join(orders, customers):
    return _beside(orders, customers, "full")


@as_sql(_BESIDE.format("(SELECT * FROM orders WHERE amount > 5)", "FULL"))
@view(key=("id", "customer"))
def full_join_of_some(orders, customers):
    return _beside(orders.where("amount > 5"), customers, "full")


@as_sql("SELECT c.id, p.id AS profile, c.full_name, p.note_name FROM customers c FULL JOIN profiles p ON c.id = p.id")
@view(key=("id", "profile"))
def one_to_one(customers, profiles):
    side = named(profiles, profile="id", note_name="note_name")
    return customers.join(side, customers.id == side.profile, "full").select("id", "profile", "full_name", "note_name")


@as_sql(
    "SELECT o.id, p.zip FROM orders o LEFT JOIN places p"
    " ON o.country_name = p.country_name AND o.city_name = p.city_name"
)
@view(key="id")
def composite_reference(orders, places):
    return orders.join(places, ["country_name", "city_name"], "left").select("id", "zip")


@as_sql("SELECT e.id, e.staff_name, b.staff_name AS boss_name FROM employees e LEFT JOIN bosses b ON e.boss_id = b.id")
@view(key="id")
def of_the_same_table(employees, bosses):
    boss = named(bosses, boss_id="id", boss_name="staff_name")
    return employees.join(boss, "boss_id", "left").select("id", "staff_name", "boss_name")


@as_sql(
    "SELECT v.customer_id, v.region_id, v.grade, c.full_name, r.region_name FROM visits v"
    " JOIN customers c ON v.customer_id = c.id LEFT JOIN regions r ON v.region_id = r.id"
)
@view(key=("customer_id", "region_id"))
def many_to_many(visits, customers, regions):
    joined = visits.join(named(customers, customer_id="id", full_name="full_name"), "customer_id")
    joined = joined.join(named(regions, region_id="id", region_name="region_name"), "region_id", "left")
    return joined.select("customer_id", "region_id", "grade", "full_name", "region_name")


@as_sql(
    "SELECT o.id, o.amount, r.id AS region, s.star_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id"
    " LEFT JOIN regions r ON c.region_id = r.id LEFT JOIN planets p ON r.planet_id = p.id"
    " LEFT JOIN stars s ON p.star_id = s.id"
)
@view(
    key="id",
)
def chain_of_five(orders, customers, regions, planets, stars):
    joined = orders.join(named(customers, customer_id="id", region_id="region_id"), "customer_id", "left")
    joined = joined.join(named(regions, region_id="id", region="id", planet_id="planet_id"), "region_id", "left")
    joined = joined.join(named(planets, planet_id="id", star_id="star_id"), "planet_id", "left")
    joined = joined.join(named(stars, star_id="id", star_name="star_name"), "star_id", "left")
    return joined.select("id", "amount", "region", "star_name")


@as_sql(
    "SELECT o.id, c.id AS customer, r.id AS region, o.amount, r.region_name FROM orders o"
    " FULL JOIN customers c ON o.customer_id = c.id FULL JOIN regions r ON c.region_id = r.id"
)
@view(
    key=("id", "customer", "region"),
)
def full_chain(orders, customers, regions):
    clients = named(customers, customer="id", region_id="region_id")
    joined = orders.join(clients, orders.customer_id == clients.customer, "full")
    areas = named(regions, region="id", region_name="region_name")
    joined = joined.join(areas, joined.region_id == areas.region, "full")
    return joined.select("id", "customer", "region", "amount", "region_name")


@as_sql(
    "SELECT o.id, c.id AS customer, e.id AS seller, o.amount FROM (SELECT * FROM orders WHERE amount > 5) o"
    " FULL JOIN customers c ON o.customer_id = c.id FULL JOIN employees e ON o.seller_id = e.id"
)
@view(
    key=("id", "customer", "seller"),
)
def full_star(orders, customers, employees):
    clients, staff = named(customers, customer="id"), named(employees, seller="id")
    joined = orders.where("amount > 5").join(clients, orders.customer_id == clients.customer, "full")
    joined = joined.join(staff, joined.seller_id == staff.seller, "full")
    return joined.select("id", "customer", "seller", "amount")


@as_sql(
    "SELECT customer_id, count(*) AS n, sum(amount) AS total, min(amount) AS least, max(amount) AS most,"
    " count(DISTINCT seller_id) AS sellers FROM orders GROUP BY customer_id"
)
@view(by="customer_id")
def per_customer(orders):
    return orders.groupBy("customer_id").agg(
        F.count("*").alias("n"),
        F.sum("amount").alias("total"),
        F.min("amount").alias("least"),
        F.max("amount").alias("most"),
        F.count_distinct("seller_id").alias("sellers"),
    )


@as_sql("SELECT region, count(*) AS n, sum(amount) AS total FROM chain_of_five GROUP BY region")
@view(by="region")
def per_region(chain_of_five):
    return chain_of_five.groupBy("region").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))


@as_sql("SELECT customer, count(id) AS n FROM full_star GROUP BY customer HAVING count(id) > 0")
@view(by="customer")
def per_customer_with_orders(full_star):
    return full_star.groupBy("customer").agg(F.count("id").alias("n")).where("n > 0")


@as_sql("SELECT c.id, c.full_name, t.total FROM customers c LEFT JOIN per_customer t ON c.id = t.customer_id")
@view(key="id")
def customers_with_totals(customers, per_customer):
    totals = named(per_customer, id="customer_id", total="total")
    return customers.join(totals, "id", "left").select("id", "full_name", "total")


@as_sql(
    "SELECT id, c.full_name, p.note_name, e.staff_name, r.region_name, b.staff_name AS boss_name FROM customers c"
    " FULL JOIN profiles p USING (id) FULL JOIN employees e USING (id)"
    " LEFT JOIN regions r ON c.region_id = r.id LEFT JOIN bosses b ON e.boss_id = b.id"
)
@view(
    key="id",
)
def people(customers, profiles, employees, regions, bosses):
    joined = customers.join(profiles, "id", "full").join(employees, "id", "full")
    joined = joined.join(named(regions, region_id="id", region_name="region_name"), "region_id", "left")
    joined = joined.join(named(bosses, boss_id="id", boss_name="staff_name"), "boss_id", "left")
    return joined.select("id", "full_name", "note_name", "staff_name", "region_name", "boss_name")


@as_sql("SELECT o.id, p.full_name, p.staff_name FROM orders o LEFT JOIN people p ON o.customer_id = p.id")
@view(key="id")
def orders_of_people(orders, people):
    found = named(people, customer_id="id", full_name="full_name", staff_name="staff_name")
    return orders.join(found, "customer_id", "left").select("id", "full_name", "staff_name")


def written(name, text, **declared):
    """A view that is declared by its SQL alone."""
    SQL[name] = text
    return sql_view(name, text, tables=NAMED, **declared)


composite_full = written(
    "composite_full",
    "SELECT o.id, p.country_name, p.city_name, o.amount FROM orders o FULL JOIN places p"
    " ON o.country_name = p.country_name AND o.city_name = p.city_name",
)
star_of_four = written(
    "star_of_four",
    "SELECT o.id, c.full_name, p.zip, e.staff_name FROM orders o LEFT JOIN customers c ON o.customer_id = c.id"
    " LEFT JOIN places p ON o.country_name = p.country_name AND o.city_name = p.city_name"
    " JOIN employees e ON o.seller_id = e.id",
)
right_at_the_end = written(
    "right_at_the_end",
    "SELECT o.id, r.id AS region, o.amount FROM orders o LEFT JOIN customers c ON o.customer_id = c.id"
    " RIGHT JOIN regions r ON c.region_id = r.id",
)

one_key = written(
    "one_key",
    "SELECT coalesce(c.id, p.id) AS id, c.full_name, p.note_name, r.region_name FROM customers c"
    " FULL JOIN profiles p ON c.id = p.id LEFT JOIN regions r ON c.region_id = r.id",
)

GROUP = ProjectionGroup(
    "joins",
    [
        inner_join, left_join, right_join, full_join, full_join_of_some, one_to_one, composite_reference,
        composite_full, of_the_same_table, many_to_many, star_of_four, chain_of_five, full_chain, right_at_the_end,
        full_star, per_customer, per_region, per_customer_with_orders, customers_with_totals, people, orders_of_people,
        one_key,
    ],
)  # fmt: skip

# One of each kind, for what takes Spark a second a view.
FEW = ProjectionGroup(
    "few_joins",
    [
        full_join_of_some,
        composite_full,
        of_the_same_table,
        many_to_many,
        star_of_four,
        chain_of_five,
        full_chain,
        per_region,
        customers_with_totals,
        people,
    ],
)
