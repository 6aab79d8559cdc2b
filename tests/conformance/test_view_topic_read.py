"""A view topic as the table of another group: live = rebuilt = the view it comes from, nulls in keys included."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest
import sqlalchemy as sa

from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, sql_view, verify, view
from projections.spark.session import small_batch_session
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import customers
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.sold_views import COLUMNS, SQL, History
from tests.conformance.sold_views import GROUP as SOLD
from tests.conformance.topic_folds import publisher, rows_of

pytestmark = pytest.mark.postgres_in_faults

METADATA = sa.MetaData()
SIDES = sa.Table(
    "sides", METADATA, sa.Column("id", sa.BigInteger, primary_key=True, nullable=True),
    sa.Column("customer", sa.BigInteger, primary_key=True, nullable=True), sa.Column("full_name", sa.Text),
    sa.Column("amount", sa.BigInteger),
)  # fmt: skip
SOLD_ROWS = sa.Table(
    "sold_rows", METADATA, sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("customer", sa.BigInteger)
)

sides = Table.from_view_topic(SIDES, topic="sides")
sold_rows = Table.from_view_topic(SOLD_ROWS, topic="rows")


@view(key=("id", "customer"))
def shown(sides):
    return sides


by_name = sql_view(
    "by_name", "SELECT full_name, count(*) AS rows FROM sides GROUP BY full_name", tables={"sides": sides}
)


@view(key="id", tables={"sold_rows": sold_rows, "customers": customers})
def buyers(sold_rows, customers):
    return sold_rows.join(customers, sold_rows.customer == customers.id).select(sold_rows.id, "region_id")


GROUP = ProjectionGroup("shown", [shown, by_name, buyers])


class Reading:
    """Two groups in two databases, the second over the topics of the first."""

    def __init__(self, store, spark, source, *, seed):
        self.log = MemoryLog()
        self.history = History(self.log, seed)
        self.environment = Environment(spark, small_batch_session(spark), store, self.log)
        self._source = source
        self._batches = RelationalBatches(source, self.log, SOLD, SQL, COLUMNS)

    def publish(self, steps):
        for _ in range(steps):
            self.history.step()
        self._batches.catch_up()
        publisher(self._source, self.log, "sold").publish()

    def assert_views_are_right(self):
        layout = self._batches._layout
        rows = list(rows_of(self._source, layout.views["sides"]).values())
        assert self._stored("shown") == as_set((r["id"], r["customer"], r["full_name"], r["amount"]) for r in rows)
        assert self._stored("by_name") == as_set(Counter(row["full_name"] for row in rows).items())
        inner = {row["id"] for row in rows_of(self._source, layout.views["inner_rows"]).values()}
        assert self._stored("buyers") == as_set((number, 1) for number in inner)

    def _stored(self, name):
        with self.environment.store.looking() as connection:
            return as_set(connection.execute(sa.text(f"SELECT * FROM {name}")))


def as_set(rows):
    return Counter(tuple(row) for row in rows)


@pytest.fixture
def reading(store, spark, tmp_path):
    with closing(SqliteTableStore(tmp_path / "source.db")) as source:
        source.prepare()
        yield Reading(store, spark, source, seed=11)


def follow(reading, *, batches):
    """Rebuild the second group, and let it follow the first."""
    reading.publish(10)
    rebuild(reading.environment, GROUP)
    reading.assert_views_are_right()
    with open_runner(reading.environment, GROUP) as runner:
        for _ in range(batches):
            reading.publish(6)
            runner.catch_up()
            reading.assert_views_are_right()
    assert all(verdict.equal for verdict in verify(reading.environment, GROUP).values())


def test_a_group_over_view_topics_is_right_live_and_rebuilt(reading):
    follow(reading, batches=2)
