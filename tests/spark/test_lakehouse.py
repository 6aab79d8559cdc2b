"""Views kept in Delta Lake: a kill before the commit, two at once, readers, the commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from factfold.cli.entry import application
from projections import (
    AppliedVersions,
    open_runner,
    read_view,
    read_views,
)
from projections.errors import (
    InvalidDefinition,
    NoServingGeneration,
    RunAlreadyActive,
    RunSuperseded,
    TableStoreUnavailable,
)
from projections.logs.offsets import OffsetRange
from projections.spark.lakehouse.store import DeltaTableStore
from projections.stores.generations import resume
from tests.conformance.join_views import (
    customers,
    orders,
)
from tests.conformance.test_joins import customer, order
from tests.lakehouse import SMALL, go_on_without_the_order, is_right, made, shown, torn


@pytest.fixture(scope="module")
def pond(spark, tmp_path_factory):
    """A group that is served; the tests below go on from each other."""
    return made(spark, tmp_path_factory.mktemp("pond"))


@pytest.mark.faults
def test_a_batch_killed_before_its_commit_shows_nothing_and_a_shorter_one_follows(pond, monkeypatch):
    environment, changes = pond
    before = shown(environment, SMALL)
    ends = torn(environment, changes, monkeypatch)
    assert shown(environment, SMALL) == before
    assert go_on_without_the_order(environment, ends) == [(1, 10, "torn")]
    with open_runner(environment, SMALL) as runner:
        runner.catch_up()
    assert is_right(environment)


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
    told = CliRunner().invoke(application(), ["projections", "list", "--views-url", environment.store.place])
    assert (told.exit_code, told.output) == (0, "pond: generation 1 serves\n")


def test_the_query_of_the_page_finds_what_serves_without_factfold(pond, spark):
    environment, _ = pond
    page = Path("docs/how-to/keep-views-in-delta.md").read_text("utf-8")
    query = page.partition("```text\nSELECT generation")[2].partition(";")[0]
    folder = environment.store.root
    query = f"SELECT generation{query}".replace("/lake/views/shop", f"{folder}/pond").replace("order_list", "left_join")
    (run,) = (state.run for state in environment.store.states("pond"))
    version = environment.store.entry(run).tables["view_left_join"]
    assert [tuple(row) for row in spark.sql(query).collect()] == [(run.generation, version)]


def test_readers_are_told_what_is_not_there(pond, spark):
    environment, _ = pond
    assert read_view(spark, environment.store.place, group="pond", view="left_join").columns[0] == "id"
    with pytest.raises(InvalidDefinition, match="serves no view 'other'"):
        read_view(spark, environment.store.place, group="pond", view="other")
    with pytest.raises(NoServingGeneration):
        read_views(spark, environment.store.place, group="puddle")
    with pytest.raises(TableStoreUnavailable, match="read by Spark"):
        AppliedVersions(environment.store.place, group="pond", table="orders")
