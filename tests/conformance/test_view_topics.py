"""A view's topic folds to the view: after every batch, cut-over and kill, read by another group, and nested."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing

import pytest
import sqlalchemy as sa

from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, sql_view, verify, view
from projections.declaring.columns import ColumnType
from projections.spark.session import small_batch_session
from projections.stores import outbox, staging
from projections.stores.handing_over import Rows
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import customers
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.sold_views import COLUMNS, GROUP, SQL, History, changed
from tests.conformance.sold_views import GROUP as SOLD
from tests.conformance.topic_folds import Died, dies_instead_of, folded, publisher, rows_of, waiting

pytestmark = pytest.mark.postgres_in_faults


@pytest.fixture
def log():
    return MemoryLog()


@pytest.fixture
def batches(store, log):
    return RelationalBatches(store, log, GROUP, SQL, COLUMNS)


def assert_folds_are_the_views(store, log, batches):
    layout = batches._layout
    for view_ in layout.views.values():
        assert folded(log, view_.definition.topic.name) == rows_of(store, view_)


def check_history(store, log, batches, *, seed=7, every=1):
    """Publish after every batch, or after several; the topics are to fold to the views then."""
    history, publishes = History(log, seed), publisher(store, log, "sold")
    for number in range(12):
        for _ in range(3):
            history.step()
        batches.catch_up()
        if number % every == 0:
            publishes.publish()
            assert_folds_are_the_views(store, log, batches)


@pytest.mark.both_databases
def test_a_topic_folds_to_its_view_after_every_batch_and_nothing_is_left(store, log, batches):
    check_history(store, log, batches)
    assert waiting(store) == {"sold": {"sides": 0, "rows": 0}}
    keys = [json.loads(key) for key, _ in log.records("sides")]
    assert any(key["id"] is None for key in keys)  # customers without orders
    assert any(value is None for _, value in log.records("sides"))


@pytest.mark.both_databases
def test_a_publisher_that_is_behind_publishes_the_newest_of_each_key(store, log, batches):
    check_history(store, log, batches, every=4)


@pytest.mark.both_databases
def test_who_is_killed_between_commit_and_publishing_is_followed_by_one_that_publishes(
    store, log, batches, monkeypatch
):
    changed(log)
    batches.catch_up()  # committed, and never published by this process
    left = waiting(store)["sold"]["sides"]
    assert left > 0
    assert log.records("sides") == ()
    with dies_instead_of(outbox, "remove_upto", monkeypatch), pytest.raises(Died):
        publisher(store, log, "sold").publish()  # published, and killed before it could say so
    assert waiting(store)["sold"]["sides"] == left
    before = folded(log, "sides")
    publisher(store, log, "sold").publish()
    assert folded(log, "sides") == before
    assert_folds_are_the_views(store, log, batches)


@pytest.mark.both_databases
def test_a_batch_that_is_not_committed_is_not_published(store, log, batches, monkeypatch):
    changed(log)
    with dies_instead_of(staging, "_merge_view", monkeypatch), pytest.raises(Died):
        batches.catch_up()
    assert publisher(store, log, "sold").publish() == 0
    batches.catch_up()
    publisher(store, log, "sold").publish()
    assert_folds_are_the_views(store, log, batches)


# ---- a view topic as the table of another group


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


OF_TOPICS = ProjectionGroup("shown", [shown, by_name, buyers])


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
    rebuild(reading.environment, OF_TOPICS)
    reading.assert_views_are_right()
    with open_runner(reading.environment, OF_TOPICS) as runner:
        for _ in range(batches):
            reading.publish(6)
            runner.catch_up()
            reading.assert_views_are_right()
    assert all(verdict.equal for verdict in verify(reading.environment, OF_TOPICS).values())


def test_a_group_over_view_topics_is_right_live_and_rebuilt(reading):
    follow(reading, batches=2)


# ---- a nested column is JSON within a view topic's records, and over a cut-over; on both databases, without Spark


NESTED = {
    "id": ColumnType("long"),
    "name": ColumnType("string"),
    "doc": ColumnType("string", shape="struct<a: array<string>, d: decimal(8,2)>"),
}
DOC = '{"a":["ü","q\\"\\\\"],"d":"1.50"}'


def values(store):
    """The records' values as a batch has them, and as a later generation finds them told."""
    view = sa.Table("v", sa.MetaData(), *(sa.Column(c, sa.BigInteger if c == "id" else sa.Text) for c in NESTED))
    rows = Rows(view, ("id",), NESTED)
    told = Rows.of_json(json.loads(json.dumps(rows.to_json())))
    with store.transaction() as connection:
        view.create(connection)
        connection.execute(view.insert(), [{"id": 1, "name": DOC, "doc": DOC}, {"id": 2, "name": None, "doc": None}])
        return [
            list(connection.scalars(sa.select(r.values(connection)).select_from(r.table).order_by(r.table.c.id)))
            for r in (rows, told)
        ]


def assert_nested_in_both(store):
    now, told = values(store)
    assert now == told == [f'{{"id":1,"name":{json.dumps(DOC, ensure_ascii=False)},"doc":{DOC}}}',
                           '{"id":2,"name":null,"doc":null}']  # fmt: skip


@pytest.mark.both_databases
def test_a_nested_column_is_json_within_the_record(store):
    assert_nested_in_both(store)
