"""`factfold` whose executors' first task of each load fails after its commit, and is run again."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from factfold.cli import main
from projections import ProjectionGroup, Table, view
from projections.stores.copying import PostgresTarget
from projections.stores.postgres import PostgresTableStore

METADATA = sa.MetaData()
ORDERS = sa.Table(
    "orders",
    METADATA,
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("customer_id", sa.BigInteger),
    sa.Column("amount", sa.BigInteger),
)
CUSTOMERS = sa.Table(
    "customers", METADATA, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("name", sa.Text)
)
orders = Table.from_changelog(ORDERS, topic="cluster.public.orders")
customers = Table.from_changelog(CUSTOMERS, topic="cluster.public.customers")


@view(key="id")
def bought(orders, customers):
    """Orders with the names of their customers."""
    named = customers.withColumnRenamed("id", "customer_id")
    return orders.join(named, "customer_id", "left").select("id", "amount", "name")


GROUP = ProjectionGroup("cluster", [bought])


@dataclass(frozen=True, repr=False)
class FailsAfterItsCommit(PostgresTarget):
    """The first attempt of a load's first part writes, commits and fails."""

    def append(self, data, *, part=None):
        """Append as ever, and fail then."""
        from pyspark import TaskContext

        rows = super().append(data, part=part)
        if part is not None and part.number == 0 and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the executor is lost behind its commit")
        return rows


def target(store, table, run=None):
    """Where executors write a table."""
    return FailsAfterItsCommit(store.uri, str(table.schema), table.name, run)


if __name__ == "__main__":
    import tests.faults.cluster_process

    PostgresTableStore.target = tests.faults.cluster_process.target
    main()
