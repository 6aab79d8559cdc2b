"""One view that several others read, and views that have the names of our own working tables."""

from __future__ import annotations

import pytest

from projections import Environment, ProjectionGroup, open_runner, rebuild, verify, view
from projections.spark.session import small_batch_session
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance.join_views import captured

pytestmark = pytest.mark.both_databases

goods = captured("goods", "amount")


@view(key="id")
def staged_goods(goods):
    """PostgreSQL's working tables are called so: where a batch's rows lie, and the keys whose rows are wanted."""
    return goods.where("amount > 1")


@view(key="id")
def wanted_goods(staged_goods):
    return staged_goods.selectExpr("id", "amount * 2 AS twice")


@view(by="amount")
def goods_by_amount(staged_goods):
    return staged_goods.groupBy("amount").count()


GROUP = ProjectionGroup("goods", [staged_goods, wanted_goods, goods_by_amount])


@pytest.fixture
def environment(spark, store):
    return Environment(spark, small_batch_session(spark), store, MemoryLog())


def shown(environment, name):
    with environment.store.looking() as connection:
        return sorted(tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name}"))


def test_each_of_them_follows(environment):
    changes = ChangeWriter(environment.log)
    for number in range(4):
        changes.put(goods, {"id": number, "amount": number})
    rebuild(environment, GROUP)
    with open_runner(environment, GROUP) as runner:
        for change in ({"id": 0, "amount": 3}, {"id": 3, "amount": 1}):
            changes.put(goods, change)
            runner.catch_up()
        changes.delete(goods, {"id": 2})
        runner.catch_up()
    assert shown(environment, "staged_goods") == [(0, 3)]
    assert shown(environment, "wanted_goods") == [(0, 6)]
    assert shown(environment, "goods_by_amount") == [(3, 1)]
    assert all(verdict.equal for verdict in verify(environment, GROUP).values())
