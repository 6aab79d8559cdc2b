"""Views kept in Delta Lake: a chosen set of the joins' truth table, planted faults, generations, bad records."""

from __future__ import annotations

import dataclasses

import pytest

from eventstore import Aggregate, event
from projections import (
    ProjectionGroup,
    Table,
    cut_over,
    diff,
    on,
    open_runner,
    read_view,
    rebuild,
    rollback,
    verify,
    view,
)
from projections.errors import (
    EventsMissing,
    KeyNotUnique,
    OlderThanHorizon,
    SparkFailed,
)
from projections.spark.lakehouse import batches as batching
from projections.spark.lakehouse import versioned
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.lakehouse.versioned import VersionedTable
from projections.spark.views.view_functions import view_columns
from projections.stores.generations import drop
from projections.testing.change_events import ChangeWriter
from tests.conformance import test_nested_columns as nested
from tests.conformance.join_views import (
    chain_of_five,
    customers,
    customers_with_totals,
    full_join_of_some,
    many_to_many,
    orders,
    people,
    right_join,
)
from tests.conformance.test_joins import STEPS, customer, first_rows, order
from tests.lakehouse import SMALL, expected, go_on_without_the_order, is_right, made, opened, shown, torn

VIEWS = [full_join_of_some, right_join, chain_of_five, many_to_many, customers_with_totals, people]
GROUP = ProjectionGroup("lake", VIEWS)
pytestmark = pytest.mark.faults  # a batch takes seconds in Delta; tests/spark/test_lakehouse.py is short


# A batch of five tables and six views takes some 15 s: of the truth table these alone, and the rest at once.
ALONE = (
    "a reference moves", "a root row is deleted", "an old change of a deleted root row comes late",
    "a root row is inserted again", "a parent is deleted", "an old change of a deleted parent comes late",
    "a parent is inserted again", "both sides change at once", "a change comes twice", "an old change comes late",
)  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.parametrize("most", [versioned.mostly_rewritten, lambda _: 0], ids=["written anew", "merged into"])
def test_views_are_right_after_chosen_changes_and_after_all_others(spark, tmp_path, monkeypatch, most):
    monkeypatch.setattr(versioned, "mostly_rewritten", most)
    environment, rest = opened(spark, tmp_path), [step for name, step in STEPS.items() if name not in ALONE]
    changes = ChangeWriter(environment.log)
    first_rows(changes)
    rebuild(environment, GROUP)
    assert shown(environment, GROUP) == expected(environment.log, GROUP)
    with open_runner(environment, GROUP) as runner:
        for happening, steps in {**{name: [STEPS[name]] for name in ALONE}, "all others": rest}.items():
            for step in steps:
                step(changes)
            runner.catch_up()
            assert shown(environment, GROUP) == expected(environment.log, GROUP), f"after {happening}"


def test_nested_columns_are_as_in_a_database(spark, tmp_path):
    environment = opened(spark, tmp_path)
    nested.follow(environment)
    view = read_view(environment.spark, environment.store.place, group=nested.SHOWN.name, view="offers")
    assert nested.in_short(view.orderBy("id").toArrow().to_pylist()) == nested.ALIKE


@pytest.fixture(scope="module")
def pond(spark, tmp_path_factory):
    """A group that is served; the tests below go on from each other."""
    return made(spark, tmp_path_factory.mktemp("pond"))


@pytest.fixture
def taken_back(pond):
    """What the ledger says after the test is what it said before; the topics have what they had."""
    environment, _ = pond
    ledger, topics = environment.store._ledger(SMALL.name), environment.log._topics
    entries, records = ledger.entries(), {name: list(found) for name, found in topics.items()}
    yield
    ledger.change(lambda _: entries)
    topics.update(records)


@pytest.mark.usefixtures("taken_back")
def test_the_planted_fault_is_seen_newest_versions_are_read_and_nothing_is_taken_back(pond, monkeypatch):
    environment, changes = pond
    changes.delete(orders, {"id": 2})
    with open_runner(environment, SMALL) as runner:
        runner.catch_up()
    ends = torn(environment, changes, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(versioned, "mostly_rewritten", lambda _: 0)  # what is written anew needs not be taken back
        patched.setattr(VersionedTable, "rows", newest)
        patched.setattr(VersionedTable, "_taken_back", lambda self, known, *, to: known)
        found = go_on_without_the_order(environment, ends)
    assert found != [(1, 10, "torn")]


def newest(table, version, spark=None):
    return (spark or table.spark).read.format("delta").load(table.path)


@pytest.mark.usefixtures("taken_back")
def test_the_planted_fault_is_seen_the_commit_is_not_the_last_write(pond, monkeypatch):
    environment, changes = pond
    changes.put(orders, order(3))
    with monkeypatch.context() as patched, open_runner(environment, SMALL) as runner:
        base = environment.store.entry(runner.held).tables
        patched.setattr(batching, "_written", lambda writes: {name: base[name] + 1 for name in writes})
        runner.run_once()  # killed after the commit: nothing is written any more
    with pytest.raises((SparkFailed, AssertionError)):  # no such version, or what a torn batch left under its number
        assert is_right(environment)


def test_records_that_cannot_be_read_are_set_aside_with_the_progress(pond):
    environment, changes = pond
    bad = environment.log.append(customers.topic, b'{"id": 5}', b"{")
    changes.put(customers, customer(1, name="after it"))
    tolerant = dataclasses.replace(SMALL, bad_records="skip")
    with open_runner(environment, tolerant) as runner:
        runner.catch_up()
    assert verify(environment, tolerant)["left_join"].equal
    environment.log._topics[customers.topic][bad] = (b'{"id": 5}', None)  # to the oracle it says nothing
    assert is_right(environment)


@view(key="id")
def with_repeated_ones(orders):
    rows = orders.select("id", "amount")
    return rows.union(rows.where("amount > 100"))


def test_a_key_that_a_batch_makes_twice_is_refused_and_the_view_stays(spark, tmp_path):
    environment, group = opened(spark, tmp_path), ProjectionGroup("repeating", [with_repeated_ones])
    changes = ChangeWriter(environment.log)
    changes.put(orders, order(1))
    rebuild(environment, group)
    changes.put(orders, order(2, amount=200))
    with open_runner(environment, group) as runner, pytest.raises(KeyNotUnique, match="2"):
        runner.run_once()
    assert shown(environment, group) == {"with_repeated_ones": [(1, 10)]}


class Meter(Aggregate):
    @event
    class Read:
        value: int


meters = Table.from_events(Meter, key="id", columns={"value": on(Meter.Read).take("value")})


@view(key="id")
def readings(meters):
    return meters.select("id", "value")


def test_a_batch_that_lacks_a_version_is_refused_or_set_aside_up_to_its_coming(spark, tmp_path):
    (kind,) = Meter.event_types.values()
    environment = opened(spark, tmp_path, {kind.schema_id: kind.registered})
    group = ProjectionGroup("meters", [readings])

    def read(id, version):
        environment.log.append(Meter.category, f"meter-{id}@{version}".encode(), kind.encode(Meter.Read(value=version)))

    read("a", 0)
    rebuild(environment, group)
    read("a", 2)
    read("b", 0)
    with open_runner(environment, group) as runner, pytest.raises(EventsMissing, match="before version 2 of meter-a"):
        runner.run_once()
    assert shown(environment, group) == {"readings": [("a", 0)]}
    tolerant = dataclasses.replace(group, bad_records="skip")
    with open_runner(environment, tolerant) as runner:
        (report,) = runner.catch_up()
    assert report.set_aside == {"behind_a_gap": 1}
    assert shown(environment, group) == {"readings": [("a", 0), ("b", 0)]}
    assert verify(environment, tolerant)["readings"].equal


def test_generations_are_compared_switched_gone_back_from_and_dropped(pond):
    environment, changes = pond
    newer = dataclasses.replace(SMALL, version=2)
    report = rebuild(environment, newer, cut_over=False)
    assert (report.generation, report.serves, report.comparison["left_join"].equal) == (2, False, True)
    changes.put(orders, order(9))
    with open_runner(environment, SMALL) as runner:
        runner.catch_up()
    assert diff(environment, newer)["left_join"].equal
    assert cut_over(environment, newer).generation == 2
    assert is_right(environment)
    assert rollback(environment, SMALL).generation == 1
    assert is_right(environment)
    assert drop(environment.store, SMALL.name, generation=2) == [2]
    assert [state.run.generation for state in environment.store.states()] == [1]
    assert all(verdict.equal for verdict in verify(environment, SMALL).values())


class Forgotten(dict):
    """Remembers nothing of what was let go."""

    def get(self, name, default=None):
        return default


def test_deleted_rows_go_at_the_horizon_and_none_comes_back_unseen(spark, tmp_path, monkeypatch):
    environment, changes = made(spark, tmp_path)
    inserted = changes.put(orders, order(2))
    changes.delete(orders, {"id": 2})
    with open_runner(environment, SMALL) as runner:
        runner.catch_up()
        store, run = environment.store, runner.held
        layout = store.layout(SMALL, run, view_columns(spark, SMALL))
        assert store.let_go(run, layout, before=1 << 40, most=1) == {"orders": 1}
        assert (store.let_go(run, layout, before=1 << 40, most=1), store.settled(run)) == ({}, {"orders": 1})
        changes.put(orders, order(2), at=inserted)
        with pytest.raises(OlderThanHorizon, match="key 2"):
            runner.run_once()
        assert is_right(environment)
        monkeypatch.setattr(DeltaTableStore, "passed", lambda *_: Forgotten())  # the planted fault
        runner.run_once()
    assert not is_right(environment)


def test_a_torn_table_is_taken_back_however_long_it_had_stood_still(spark, tmp_path, monkeypatch):
    """The version that counts is as old as Delta lets a table's past be read, and older."""
    kept = "spark.databricks.delta.properties.defaults.deletedFileRetentionDuration"
    spark.conf.set(kept, "interval 0 hours")
    try:
        environment, changes = made(spark, tmp_path)
        ends = torn(environment, changes, monkeypatch)
        assert is_shown_as_of(environment, ends)
        assert go_on_without_the_order(environment, ends) == [(1, 10, "torn")]
    finally:
        spark.conf.unset(kept)


def is_shown_as_of(environment, ends):
    """Readers see what was before the batch."""
    return shown(environment, SMALL)["left_join"] == [(1, 10, "Ann")] and bool(ends)
