"""What Spark is made to do once, so that most classes it ever needs are loaded: a view built, followed, verified."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import sqlalchemy as sa

from eventstore import Aggregate, event
from eventstore.event_types import event_type_of
from projections import Environment, ProjectionGroup, Table, on, open_runner, rebuild, verify, view
from projections.spark.session import small_batch_session
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import ChangeWriter, MemoryLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Order(Aggregate):
    """An aggregate whose two events stand for all others."""

    @event
    class Placed:
        """Sets every column."""

        customer_id: int
        amount: float

    @event
    class Shipped:
        """Sets one column again."""

        amount: float


orders = Table.from_events(
    Order,
    key="id",
    columns={
        "customer_id": on(Order.Placed).take("customer_id"),
        "amount": [on(Order.Placed).take("amount"), on(Order.Shipped).take("amount")],
    },
)
_rows = sa.Table("customers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text))
customers = Table.from_changelog(_rows, topic="customers")


@view(key="id")
def rehearsed(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Each order with its customer."""
    return orders.join(customers.toDF("customer_id", "customer"), "customer_id", "left")


def rehearse(spark: SparkSession) -> None:
    """Keep a view in a SQLite file and in a Delta table, from its first record to its verification."""
    with TemporaryDirectory() as folder, closing(SqliteTableStore(Path(folder) / "views.db")) as store:
        store.prepare()
        log = MemoryLog({kind.schema_id: kind.registered for kind in Order.event_types.values()})
        group = ProjectionGroup("rehearsal", [replace(rehearsed, lake=f"{folder}/rehearsed")])
        _follow(Environment(spark, small_batch_session(spark), store, log), log, group)


def _follow(environment: Environment, log: MemoryLog, group: ProjectionGroup) -> None:
    changes = ChangeWriter(log)

    def happen(number: int) -> None:
        changes.put(customers, {"id": 1, "name": f"name {number}"})
        for version, happened in enumerate((Order.Placed(customer_id=1, amount=1.0), Order.Shipped(amount=2.0))):
            value = event_type_of(happened).encode(happened)
            log.append(Order.category, f"order-{number}@{version}".encode(), value)

    happen(1)
    rebuild(environment, group)
    with open_runner(environment, group) as runner:
        happen(2)
        runner.catch_up()
    verify(environment, group)
