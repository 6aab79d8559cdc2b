"""Two views with topics, one of them with keys that may be null in parts, and random changes of their tables."""

from __future__ import annotations

import random
from dataclasses import replace

from projections import ProjectionGroup, ViewTopic, sql_view
from projections.declaring.columns import ColumnType
from projections.declaring.views import Reference
from projections.testing.memory_log import ChangeWriter
from tests.conformance.join_views import customers, orders

LONG, TEXT = ColumnType("long"), ColumnType("string")
BESIDE = (
    "SELECT orders.id, customers.id AS customer, amount, full_name"
    " FROM orders {} JOIN customers ON orders.customer_id = customers.id"
)
COLUMNS = {
    "sides": {"id": LONG, "customer": LONG, "amount": LONG, "full_name": TEXT, "_by_customer_id": LONG},
    "inner_rows": {"id": LONG, "customer": LONG, "amount": LONG, "full_name": TEXT},
}
TABLES = {"orders": orders, "customers": customers}
# As Spark plans them: these tests go without it.
BUYER = Reference("orders", ("customer_id",), "customers")
PARTS = {"orders": ("customer_id",), "customers": ("id",)}
sides = replace(
    sql_view("sides", BESIDE.format("FULL"), tables=TABLES, topic="sides", key=("id", "customer")),
    declared=(),
    by=("_by_customer_id",),
    by_table=PARTS,
)
inner_rows = replace(
    sql_view("inner_rows", BESIDE.format(""), tables=TABLES, topic=ViewTopic("rows", partitions=2), key="id"),
    declared=(BUYER,),
)
SQL = {"sides": BESIDE.format("FULL"), "inner_rows": BESIDE.format("")}
GROUP = ProjectionGroup("sold", [sides, inner_rows])


class History:
    """Random changes of few orders and customers, so that rows come, change, go and come again."""

    def __init__(self, log, seed):
        self._changes, self._chosen = ChangeWriter(log), random.Random(seed)

    def step(self):
        chosen = self._chosen
        if chosen.random() < 0.2:
            table, row = (orders, {"id": chosen.randrange(6)})
            if chosen.random() < 0.5:
                table, row = (customers, {"id": chosen.randrange(4)})
            return self._changes.delete(table, row)
        if chosen.random() < 0.4:
            row = {"id": chosen.randrange(4), "region_id": 1, "full_name": chosen.choice(["Ann", 'Ö"\\\n', "Bo"])}
            return self._changes.put(customers, row)
        row = {"id": chosen.randrange(6), "customer_id": chosen.choice([None, 0, 1, 2, 3, 9]), "seller_id": 1}
        return self._changes.put(
            orders, {**row, "country_name": "NO", "city_name": "Oslo", "amount": chosen.randrange(5)}
        )


def changed(log):
    """Some changes."""
    history = History(log, 3)
    for _ in range(20):
        history.step()
