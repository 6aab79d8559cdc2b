"""Views kept in Delta Lake: a chosen set of the joins' truth table, kills between any two writes, two at once."""

from __future__ import annotations

import dataclasses

import pytest
from typer.testing import CliRunner

from factfold.cli.entry import application
from projections import (
    AppliedVersions,
    Environment,
    ProjectionGroup,
    cut_over,
    diff,
    open_runner,
    read_view,
    read_views,
    rebuild,
    rollback,
    verify,
)
from projections.errors import (
    InvalidDefinition,
    NoServingGeneration,
    RunAlreadyActive,
    RunSuperseded,
    SparkFailed,
    TableStoreUnavailable,
)
from projections.log import OffsetRange
from projections.spark.lakehouse import batches as batching
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.lakehouse.versioned import VersionedTable
from projections.spark.session import small_batch_session
from projections.tablestore.generations import drop, resume
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import customers, customers_with_totals, full_join_of_some, left_join, orders
from tests.conformance.test_joins import STEPS, customer, expected, first_rows, in_order, order

GROUP = ProjectionGroup("lake", [full_join_of_some, customers_with_totals])
SMALL = ProjectionGroup("pond", [left_join])


class Killed(Exception):
    """What takes the place of a kill."""


def opened(spark, path):
    return Environment(spark, small_batch_session(spark), DeltaTableStore(spark, f"delta:{path}"), MemoryLog())


def shown(environment, group):
    found = read_views(environment.spark, environment.store.place, group=group.name)
    return {view.name: in_order(tuple(row) for row in found[view.name].collect()) for view in group.views}


def test_views_are_right_after_a_rebuild_and_after_every_change(spark, tmp_path):
    environment, steps = opened(spark, tmp_path), list(STEPS.values())
    changes = ChangeWriter(environment.log)
    first_rows(changes)
    rebuild(environment, GROUP)
    assert shown(environment, GROUP) == expected(environment.log, GROUP)
    with open_runner(environment, GROUP) as runner:
        for half in (steps[:15], steps[15:]):
            for step in half:
                step(changes)
            runner.catch_up()
            assert shown(environment, GROUP) == expected(environment.log, GROUP)


@pytest.fixture(scope="module")
def pond(spark, tmp_path_factory):
    """A group of one view that is served, and who writes its topics; the tests below go on from each other."""
    environment = opened(spark, tmp_path_factory.mktemp("pond"))
    changes = ChangeWriter(environment.log)
    changes.put(customers, customer(1))
    changes.put(orders, order(1))
    rebuild(environment, SMALL)
    return environment, changes


def is_right(environment):
    """Whether the view is what DuckDB makes of the topics, those records left out that no JSON is in."""
    return shown(environment, SMALL) == expected(environment.log, SMALL)


def kill(*_, **__):
    raise Killed


def torn(environment, changes, monkeypatch):
    """A batch with a new name and a new order that comes as far as its commit; returns the ends before it."""
    ends = environment.log.end_offsets(list(SMALL.inputs))
    changes.put(customers, customer(1, name="torn"))
    changes.put(orders, order(2))
    with monkeypatch.context() as patched, open_runner(environment, SMALL) as runner:
        patched.setattr(DeltaTableStore, "advance", kill)
        with pytest.raises(Killed):
            runner.run_once()
    return ends


def go_on_without_the_order(environment, ends):
    """A batch up to the new name alone: what the torn one left of the order would show."""
    with open_runner(environment, SMALL) as runner:
        now = environment.log.end_offsets(list(SMALL.inputs))
        runner.run_once(ends={**now, orders.topic: ends[orders.topic]})
    return shown(environment, SMALL)["left_join"]


def test_a_batch_killed_before_its_commit_shows_nothing_and_a_shorter_one_follows(pond, monkeypatch):
    environment, changes = pond
    before = shown(environment, SMALL)
    ends = torn(environment, changes, monkeypatch)
    assert shown(environment, SMALL) == before
    assert go_on_without_the_order(environment, ends) == [(1, 10, "torn")]
    with open_runner(environment, SMALL) as runner:
        runner.catch_up()
    assert is_right(environment)


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
    with pytest.raises(SparkFailed):
        shown(environment, SMALL)


def test_a_second_runner_is_refused_and_the_batch_of_a_first_one_fails(pond):
    environment, changes = pond
    changes.put(orders, order(7))
    with open_runner(environment, SMALL) as runner:
        with pytest.raises(RunAlreadyActive), open_runner(environment, SMALL):
            pass
        environment.store.claim(runner.held)  # from another machine, where the lock is not seen
        before = shown(environment, SMALL)
        with pytest.raises(RunSuperseded):
            runner.run_once()
    assert shown(environment, SMALL) == before


def test_a_batch_that_is_repeated_does_nothing(pond):
    environment, changes = pond
    changes.put(customers, customer(1, name="once"))
    with open_runner(environment, SMALL) as runner:
        start = runner.progress
        runner.catch_up()
        entry = environment.store.entry(runner.held)
        with pytest.raises(RunSuperseded):
            runner._applier.apply(OffsetRange(start, runner.progress))
    assert environment.store.entry(runner.held) == entry
    assert is_right(environment)


def test_records_that_cannot_be_read_are_set_aside_with_the_progress(pond):
    environment, changes = pond
    environment.log.append(customers.topic, b'{"id": 5}', b"{")
    changes.put(customers, customer(1, name="after it"))
    tolerant = dataclasses.replace(SMALL, bad_records="skip")
    with open_runner(environment, tolerant) as runner:
        runner.catch_up()
    assert verify(environment, tolerant)["left_join"].equal
    assert shown(environment, SMALL)["left_join"][0][2] == "after it"


def test_of_two_commits_to_a_ledger_at_once_neither_is_lost(pond, spark):
    environment, _ = pond
    other, asked = DeltaTableStore(spark, environment.store.place), []

    def paused(entries):
        if not asked.append(True) and len(asked) == 1:
            other.set_held(entries[1].run, held=True)
        return {1: entries[1].changed(paused=True)}

    environment.store._ledger(SMALL.name).change(paused)
    (state,) = other.states(SMALL.name)
    assert (len(asked), state.paused, state.held) == (2, True, True)
    other.set_held(state.run, held=False)
    resume(other, SMALL.name)


def test_commands_tell_of_the_ledgers(pond, monkeypatch):
    monkeypatch.setattr("pyspark.sql.SparkSession.stop", lambda self: None)
    environment, _ = pond
    told = CliRunner().invoke(application, ["projections", "list", "--views-url", environment.store.place])
    assert (told.exit_code, told.output) == (0, "pond: generation 1 serves\n")


def test_readers_are_told_what_is_not_there(pond, spark):
    environment, _ = pond
    assert read_view(spark, environment.store.place, group="pond", view="left_join").columns[0] == "id"
    with pytest.raises(InvalidDefinition, match="serves no view 'other'"):
        read_view(spark, environment.store.place, group="pond", view="other")
    with pytest.raises(NoServingGeneration):
        read_views(spark, environment.store.place, group="puddle")
    with pytest.raises(TableStoreUnavailable, match="read by Spark"):
        AppliedVersions(environment.store.place, group="pond", table="orders")


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
