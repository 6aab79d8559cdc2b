"""Deleted rows go at the horizon: views stay what they are, and no late or repeated change brings a row back unseen."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from factfold.cli.entry import application
from projections import Environment, ProjectionGroup, open_runner, rebuild, verify
from projections.declaring.columns import ColumnType
from projections.declaring.tables import BELOW_STREAMED
from projections.errors import InvalidDefinition, ProjectionError
from projections.lifecycle.between_batches import Horizon
from projections.lifecycle.metrics import RunMetrics
from projections.spark.session import small_batch_session
from projections.stores import forgetting
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance import view_oracle
from tests.conformance.followed_views import in_a_file
from tests.conformance.join_views import NAMED, SQL, customer, customers, full_join, left_join, order, orders
from tests.conformance.relational_batches import RelationalBatches
from tests.conformance.sold_views import BUYER, PARTS
from tests.errors import raises

pytestmark = pytest.mark.postgres_in_faults

LONG, TEXT = ColumnType("long"), ColumnType("string")
COLUMNS = {
    "left_join": {"id": LONG, "amount": LONG, "full_name": TEXT},
    "full_join": {"id": LONG, "customer": LONG, "amount": LONG, "full_name": TEXT, "_by_customer_id": LONG},
}
# As Spark plans them.
left_join = replace(left_join, declared=(BUYER,))
full_join = replace(full_join, declared=(), by=("_by_customer_id",), by_table=PARTS)
GROUP = ProjectionGroup("horizons", [left_join, full_join])
FOR_EVER = 1 << 40  # seconds since 1970: everything that is deleted is due


class Shop:
    """Orders and customers whose views are kept without Spark, and whose deleted rows are due at once."""

    def __init__(self, store):
        self.store, self.log = store, MemoryLog()
        self.changes, self.batches = ChangeWriter(self.log), RelationalBatches(store, self.log, GROUP, SQL, COLUMNS)
        self.run, self.layout = store.serving(GROUP, COLUMNS)

    def let_go(self, *, before=FOR_EVER, most=1_000):
        return self.store.let_go(self.run, self.layout, before=before, most=most)

    def state(self, name):
        """The keys of a state's rows, and whether each is deleted."""
        state = self.layout.tables[name].state
        with self.store.transaction() as connection:
            return {row.id: bool(row._deleted) for row in connection.execute(sa.select(state))}

    def entries(self, name):
        with self.store.transaction() as connection:
            deleted = self.layout.tables[name].horizon.deleted
            return connection.execute(sa.select(deleted.c["id"]).order_by(*deleted.primary_key)).scalars().all()

    def age(self, name, seconds):
        """Make all deletions noted so far older."""
        deleted = self.layout.tables[name].horizon.deleted
        with self.store.transaction() as connection:
            connection.execute(sa.update(deleted).values({"_at": deleted.c["_at"] - seconds}))

    def assert_right(self, after=""):
        view_oracle.assert_views_are_right(self.store, self.log, GROUP, SQL, NAMED, after=after)


@pytest.fixture
def shop(store):
    return Shop(store)


def deleted_and_gone(shop, *, rows=1):
    """Orders that were deleted and let go of; returns the position of the first one's insert."""
    first, *_ = [shop.changes.put(orders, order(n)) for n in range(rows)]
    for n in range(rows):
        shop.changes.delete(orders, {"id": n})
    shop.batches.catch_up()
    shop.let_go()
    assert 0 not in shop.state("orders")
    return first


@pytest.mark.both_databases
def test_views_stay_right_through_random_histories_whose_deleted_rows_go_at_once(shop):
    chance, gone = random.Random(7), 0
    for batch in range(12):
        for _ in range(chance.choice([1, 4, 12])):
            table, make = chance.choice([(orders, order), (customers, customer)])
            key = chance.randrange(5)
            if chance.random() < 0.4:
                shop.changes.delete(table, {"id": key})
            else:
                shop.changes.put(table, make(key))
        shop.batches.catch_up()
        gone += sum(shop.let_go(most=chance.choice([1, 3])).values())
        shop.assert_right(f"batch {batch}")
    gone += sum(shop.let_go().values())
    assert gone > 10
    assert not any([*shop.state("orders").values(), *shop.state("customers").values()])
    assert shop.entries("orders") == shop.entries("customers") == []


@pytest.mark.both_databases
def test_a_repeated_change_of_a_row_that_is_gone_is_told_and_changes_nothing(shop):
    position = deleted_and_gone(shop)
    shop.changes.put(orders, order(0), at=position)
    with raises(ProjectionError, code="older-than-horizon", match="older than forgotten deletions") as told:
        shop.batches.catch_up()
    assert told.value.place == f"topic {orders.topic}, key 0"
    assert shop.state("orders") == {}
    assert view_oracle.stored(shop.store, GROUP)["left_join"] == []


def test_a_snapshot_from_before_the_deletion_is_told_and_a_later_one_brings_its_rows(shop):
    position = deleted_and_gone(shop)
    shop.changes.put(orders, order(5), at=position + 100 - BELOW_STREAMED)
    shop.batches.catch_up()
    assert shop.state("orders") == {5: False}
    shop.changes.put(orders, order(0), at=position - BELOW_STREAMED)
    with raises(ProjectionError, code="older-than-horizon"):
        shop.batches.catch_up()


def test_a_repetition_that_comes_with_the_deletion_is_harmless_and_so_are_those_of_rows_that_are_known(shop):
    position = deleted_and_gone(shop)
    lives = shop.changes.put(orders, order(1))
    shop.batches.catch_up()
    shop.changes.put(orders, order(0), at=position)
    shop.changes.delete(orders, {"id": 0}, at=position + 1)
    shop.changes.put(orders, order(1), at=lives)
    shop.batches.catch_up()
    assert shop.state("orders") == {0: True, 1: False}
    shop.let_go()
    assert shop.state("orders") == {1: False}
    shop.assert_right()


@pytest.mark.both_databases
def test_a_key_that_is_used_again_comes_back_whether_its_deleted_row_is_gone_or_not(shop):
    deleted_and_gone(shop)
    shop.changes.put(orders, order(0))
    shop.changes.put(orders, order(1))
    shop.batches.catch_up()
    shop.changes.delete(orders, {"id": 1})
    shop.batches.catch_up()
    shop.changes.put(orders, order(1))
    shop.batches.catch_up()
    state, deleted = shop.layout.tables["orders"].state, shop.layout.tables["orders"].horizon.deleted
    with shop.store.transaction() as connection:  # as in another partition, where a topic has grown since
        connection.execute(sa.update(state).values(_offset=sa.select(deleted.c["_offset"]).scalar_subquery()))
    assert shop.let_go() == {"orders": 1}
    assert shop.state("orders") == {0: False, 1: False}
    shop.assert_right()


def test_a_late_change_of_a_row_that_is_known_is_applied_however_old_it_is(shop):
    shop.changes.put(orders, order(1), at=10)
    deleted_and_gone(shop)
    shop.changes.put(orders, order(1) | {"amount": 77}, at=20)
    shop.batches.catch_up()
    assert view_oracle.stored(shop.store, GROUP)["left_join"][0][:2] == (1, 77)
    shop.assert_right()


def test_a_row_that_is_deleted_again_counts_from_its_last_deletion(shop):
    for seconds in (1_000, 0):
        shop.changes.put(orders, order(0))
        shop.batches.catch_up()
        shop.changes.delete(orders, {"id": 0})
        shop.batches.catch_up()
        shop.age("orders", seconds)
    now = Horizon(shop.store, shop.run, shop.layout, keep=timedelta(seconds=500))
    assert now.let_go() == {"orders": 1}  # the first deletion alone
    assert shop.state("orders") == {0: True}
    shop.age("orders", 1_000)
    assert now.let_go() == {}  # it has just looked
    assert Horizon(shop.store, shop.run, shop.layout, keep=timedelta(seconds=500)).let_go() == {"orders": 1}
    assert shop.state("orders") == {}


@pytest.mark.both_databases
def test_a_step_settles_so_many_at_most_the_oldest_first(shop):
    for n in range(5):
        shop.changes.put(orders, order(n))
    shop.batches.catch_up()
    for n in (3, 1):
        shop.changes.delete(orders, {"id": n})
        shop.batches.catch_up()
        shop.age("orders", 10)
    shop.changes.delete(orders, {"id": 2})
    shop.batches.catch_up()
    assert shop.let_go(most=2) == {"orders": 2}
    assert shop.state("orders") == {0: False, 2: True, 4: False}
    assert shop.let_go(most=2) == {"orders": 1}
    assert shop.store.settled(shop.run) == {"orders": 3}
    (row,) = shop.store.generations()
    assert row["deletions_settled"] == {"orders": 3}


def test_a_full_step_is_followed_by_others_at_once(shop, monkeypatch):
    monkeypatch.setattr("projections.lifecycle.between_batches.STEP_ROWS", 2)
    monkeypatch.setattr("projections.lifecycle.between_batches._MOST_SECONDS", 60.0)
    for n in range(5):
        shop.changes.put(orders, order(n))
        shop.changes.delete(orders, {"id": n})
    shop.batches.catch_up()
    shop.age("orders", 7_200)
    assert Horizon(shop.store, shop.run, shop.layout, keep=timedelta(hours=1)).let_go() == {"orders": 5}
    assert shop.state("orders") == {}


def test_nobody_else_lets_go_of_a_run_s_rows(shop):
    shop.store.claim(shop.run)
    with raises(ProjectionError, code="run-superseded"):
        shop.let_go()


@pytest.mark.both_databases
def test_deletions_of_a_generation_that_was_built_before_count_from_its_next_runner_on(shop):
    shop.changes.put(orders, order(0))
    shop.changes.delete(orders, {"id": 0})
    shop.batches.catch_up()
    with shop.store.transaction() as connection:
        for table in (shop.layout.horizon, *(t.horizon.deleted for t in shop.layout.tables.values())):
            table.drop(connection)
    assert shop.store.settled(shop.run) == {}
    for now in (1_000, 2_000):
        with shop.store.transaction() as connection:
            forgetting.ensure(connection, shop.layout, now=now)
    assert shop.let_go(before=999) == {}
    assert shop.let_go(before=1_000) == {"orders": 1}
    assert shop.state("orders") == {}


@pytest.mark.both_databases
def test_deleted_rows_that_a_build_loads_count_from_then_on(store):
    run, layout = store.begin_generation(GROUP, COLUMNS)
    state = layout.tables["orders"].state
    rows = [{"id": n, "_epoch": 0, "_pos": n, "_offset": n, "_deleted": n == 1} for n in range(2)]
    with store.transaction() as connection:
        connection.execute(sa.insert(state), rows)
    store.index_generation(GROUP, layout)
    assert store.let_go(run, layout, before=FOR_EVER, most=10) == {"orders": 1}
    with store.transaction() as connection:
        assert connection.execute(sa.select(state.c["id"])).scalars().all() == [0]


EXPLAIN = {"SQLite": "EXPLAIN QUERY PLAN ", "PostgreSQL": "EXPLAIN "}


@pytest.mark.both_databases
def test_what_is_due_is_found_without_a_look_at_the_rest_of_the_state(shop, database_kind):
    explain, plans = EXPLAIN[database_kind], []
    state = shop.layout.tables["orders"].state
    rows = [{"id": n, "_epoch": 0, "_pos": n, "_offset": n, "_deleted": n % 5 == 0} for n in range(50_000)]
    with shop.store.transaction() as connection:
        connection.execute(sa.insert(state), rows)
        forgetting.note_loaded(connection, shop.layout, now=5)
    shop.store.analyze(shop.layout)

    @sa.event.listens_for(shop.store._engine, "before_cursor_execute")
    def explained(connection, cursor, statement, parameters, context, many):
        if state.name in statement:
            cursor.execute(explain + statement, parameters)
            plans.extend(" ".join(map(str, row)) for row in cursor.fetchall())

    assert shop.let_go(most=100) == {"orders": 100}
    assert [line for line in plans if state.name in line and ("Index Scan" in line or "SEARCH" in line)]
    assert not [line for line in plans if f"Seq Scan on {state.name}" in line or f"SCAN {state.name}" in line]


def test_a_runner_lets_go_by_itself_and_says_so(spark, tmp_path):
    with in_a_file(tmp_path) as store:
        environment, metrics = Environment(spark, small_batch_session(spark), store, MemoryLog()), RunMetrics("one")
        group, changes = ProjectionGroup("one", [left_join]), ChangeWriter(environment.log)
        changes.put(orders, order(1))
        changes.delete(orders, {"id": 2})
        rebuild(environment, group)
        with store.transaction() as connection:
            connection.execute(sa.text('UPDATE "factfold_one_1$deleted_orders" SET _at = _at - 30 * 86400'))
        with open_runner(environment, group, metrics=metrics) as runner:
            assert runner.run_once() is None
        told = CliRunner().invoke(application(), ["projections", "status", "--views-url", f"sqlite:///{store.place}"])
        assert "; 1 deleted rows let go of" in told.output
        labels = {"group": "one", "table": "orders"}
        assert metrics.registry.get_sample_value("factfold_projection_deletions_settled_total", labels) == 1
        with store.transaction() as connection:
            keys = connection.scalars(sa.text('SELECT id FROM "factfold_one_1$state_orders"')).all()
        assert keys == [1]
        assert all(verdict.equal for verdict in verify(environment, group).values())


def test_a_horizon_that_is_shorter_than_a_source_repeats_is_refused():
    with pytest.raises(InvalidDefinition, match="may repeat older changes"):
        ProjectionGroup("short", [left_join], horizon=timedelta(minutes=59))
    assert (
        ProjectionGroup("long", [left_join], horizon=None).fingerprint()
        == ProjectionGroup("long", [left_join]).fingerprint()
    )
