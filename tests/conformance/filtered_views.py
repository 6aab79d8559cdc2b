"""Views of tables with a condition: a row that stops meeting it leaves as a deleted one does, and comes back."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st

from projections import ProjectionGroup, field, sql_view
from tests.captured import captured
from tests.conformance import view_oracle
from tests.conformance.followed_views import World, followed, histories_of

every_order = captured("filtered_orders", "customer_id", "amount")
every_customer = captured("filtered_customers", "region_id", "full_name")
every_region = captured("filtered_regions", "region_name")
EVERY = {"every_order": every_order, "every_customer": every_customer, "every_region": every_region}
NAMED = {
    "orders": every_order.where(field("amount") > 1).where(~(field("amount") == 3)),
    "customers": every_customer.where(field("full_name").starts_with("b") | field("region_id").is_null()),
    "regions": every_region.where(~field("region_name").is_null()),
    "every_order": every_order,
}
# The same conditions, written out for DuckDB over every row.
SOME = {
    "orders": "(SELECT * FROM every_order WHERE amount > 1 AND amount <> 3)",
    "customers": "(SELECT * FROM every_customer WHERE starts_with(full_name, 'b') OR region_id IS NULL)",
    "regions": "(SELECT * FROM every_region WHERE region_name IS NOT NULL)",
    "every_order": "every_order",
}
QUERIES = {
    "looked_up": """
        SELECT o.id, o.amount, c.full_name, r.region_name FROM {orders} o LEFT JOIN {customers} c
        ON o.customer_id = c.id LEFT JOIN {regions} r ON c.region_id = r.id""",
    "both_sides": """
        SELECT o.id, c.id AS customer, o.amount, c.full_name FROM {orders} o FULL JOIN {customers} c
        ON o.customer_id = c.id""",
    "summed": "SELECT customer_id, count(*) AS orders, max(amount) AS most FROM {orders} GROUP BY customer_id",
    "all_of_them": "SELECT id, amount FROM {every_order}",
}
SQL = {name: query.format(**{role: role for role in SOME}) for name, query in QUERIES.items()}
ORACLE = {name: query.format(**SOME) for name, query in QUERIES.items()}
GROUP = ProjectionGroup("filtered", [sql_view(name, text, tables=NAMED) for name, text in SQL.items()])
WORLD = World(GROUP, tuple(EVERY.values()), SQL, partial(view_oracle.expected, group=GROUP, sql=ORACLE, tables=EVERY))
FOLLOWED = followed(
    WORLD,
    histories_of(
        WORLD.tables,
        lambda column: (
            st.none() | (st.sampled_from(["a", "b", "bb"]) if column.endswith("name") else st.integers(0, 4))
        ),
        ids=3,
    ),
    10,
)
