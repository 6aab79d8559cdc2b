"""Views kept in Delta Lake: a chosen set of the joins' truth table, kills between any two writes, two at once."""

from __future__ import annotations

import dataclasses

import pytest

from projections import (
    Environment,
    ProjectionGroup,
    cut_over,
    diff,
    open_runner,
    read_views,
    rebuild,
    rollback,
    verify,
)
from projections.errors import RunAlreadyActive, RunSuperseded
from projections.log import OffsetRange
from projections.spark.lakehouse import batches as batching
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.lakehouse.versioned import VersionedTable
from projections.spark.session import small_batch_session
from projections.tablestore.generations import drop
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
    verdicts = verify(environment, GROUP)
    assert {name: verdict.equal for name, verdict in verdicts.items()} == dict.fromkeys(
        ("full_join_of_some", "per_customer", "customers_with_totals"), True
    )


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
    return shown(environment, SMALL) == expected(environment.log, SMALL)


def killed_with_both_tables_and_the_view_written(environment, changes, monkeypatch):
    """A batch that comes as far as its commit, and the views of before it."""
    before = shown(environment, SMALL)
    changes.put(customers, customer(1, name="torn"))
    changes.put(orders, order(2))
    with monkeypatch.context() as patched, open_runner(environment, SMALL) as runner:
        patched.setattr(DeltaTableStore, "advance", kill)
        with pytest.raises(Killed):
            runner.run_once()
    return before


def kill(*_, **__):
    raise Killed


def test_a_batch_killed_before_its_commit_shows_nothing_and_a_shorter_one_follows(pond, monkeypatch):
    environment, changes = pond
    before = killed_with_both_tables_and_the_view_written(environment, changes, monkeypatch)
    assert shown(environment, SMALL) == before
    changes.delete(orders, {"id": 2})
    with open_runner(environment, SMALL) as runner:
        # No further than before the order came: what is left of the torn batch would show it.
        ends = environment.log.end_offsets(list(SMALL.inputs))
        runner.run_once(ends={**ends, orders.topic: {0: 1}})
        assert shown(environment, SMALL) == {"left_join": [(1, 10, "torn")]}
        runner.catch_up()
    assert is_right(environment)


FAULTS = {
    "the newest version is read and written, and not the ledger's": [
        (VersionedTable, "rows", lambda self, version, spark=None: spark_of(self, spark).load(self.path)),
        (VersionedTable, "version", lambda self: -1),
    ],
    "the commit is not the last write": [(batching, "_written", lambda writes: kill() if writes else {})],
}


def spark_of(table, spark):
    return (spark or table.spark).read.format("delta")


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
