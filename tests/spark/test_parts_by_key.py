"""A group divided by key over two databases: each has its part of the view, and both together the whole view."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as F

from projections import Environment, ProjectionGroup, Table, field, open_runner, rebuild, verify, view
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.join_views import customers

ORDERS = sa.Table(
    "orders", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("buyer", sa.BigInteger)
)
ALL = Table.from_changelog(ORDERS, topic="shop.public.orders")
EVEN, ODD = (Table.from_changelog(ORDERS, topic=f"shop_{part}.public.orders") for part in ("even", "odd"))


def group_of(orders):
    @view(key="id", tables={"orders": orders, "customers": customers})
    def bought(orders, customers):
        return orders.join(customers.select(F.col("id").alias("buyer"), "full_name"), "buyer", "left")

    return ProjectionGroup("shop", [bought])


class Part:
    """The group over one part of the orders, in a database of its own."""

    def __init__(self, opened, spark, small, log, path, orders):
        store = opened.enter_context(closing(SqliteTableStore(path)))
        store.prepare()
        self.environment, self.group = Environment(spark, small, store, log), group_of(orders)
        rebuild(self.environment, self.group)

    def follow(self):
        with open_runner(self.environment, self.group) as runner:
            runner.catch_up()
        assert verify(self.environment, self.group)["bought"].equal

    def rows(self):
        return self._all("bought")

    def stored_orders(self):
        """The rows of the state of the orders."""
        (name,) = (row[0] for row in self._all("sqlite_master WHERE name LIKE '%state_orders'", "name"))
        return len(self._all(f'"{name}"'))

    def _all(self, table, columns="*"):
        with self.environment.store.looking() as connection:
            return {tuple(row) for row in connection.execute(sa.text(f"SELECT {columns} FROM {table}"))}


@pytest.fixture
def part(spark, small, tmp_path):
    with ExitStack() as opened:
        yield lambda log, name, orders: Part(opened, spark, small, log, tmp_path / f"{name}.db", orders)


# By topics the state is divided too. A condition divides the views alone: the state retains all rows.
DIVIDED = {
    "by topics": ((EVEN, ODD), [4, 4]),
    "by a condition": ((ALL.where(field("id") < 50), ALL.where(~(field("id") < 50))), [8, 8]),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_both_parts_are_the_whole_view(name, part):
    (first, second), states = DIVIDED[name]
    log = MemoryLog()
    changes = ChangeWriter(log)

    def put(number, buyer):
        for table in (ALL, EVEN if number % 2 == 0 else ODD):
            changes.put(table, {"id": number, "buyer": buyer})

    changes.put(customers, {"id": 1, "full_name": "Ann"})
    for number in (2, 3, 60, 61, 62, 63):
        put(number, 1)
    parts = [part(log, "first", first), part(log, "second", second)]
    changes.put(customers, {"id": 1, "full_name": "Åsa"})  # changes rows of both
    put(3, 9)
    put(4, 1)
    put(65, 1)
    whole = part(log, "whole", ALL)
    for one in parts:
        one.follow()
    one, other = (part.rows() for part in parts)
    assert one | other == whole.rows()
    assert (len(one) + len(other), len(whole.rows()), bool(one), bool(other)) == (8, 8, True, True)
    assert [part.stored_orders() for part in parts] == states
