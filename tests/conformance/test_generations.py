"""Generations beside each other: switched forwards only, gone back to, paused, held, compared, dropped; no Spark."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, diff
from projections.declaring.columns import ColumnType
from projections.errors import DefinitionChanged, NotComparable, ProjectionError, RunAlreadyActive, RunRetired
from projections.lifecycle.between_batches import Standing
from projections.stores import comparison, runs
from projections.stores.generations import drop, hold, newest, rebuilding, refuse_changed
from projections.stores.locks import REBUILDER, runner_of
from projections.stores.outlook import outlook
from projections.stores.own_tables import create_own_tables, own_tables
from projections.stores.runs import BUILT, RETIRED, SERVING
from tests.conformance.ticket_batches import COLUMNS, GROUP, rows, served, ticket_names
from tests.errors import raises

pytestmark = pytest.mark.postgres_in_faults

NEWER = ProjectionGroup("tickets", [ticket_names], version=2)


def built(store, *keys, group=GROUP, to=5, columns=COLUMNS, hours="1.5"):
    """A generation with a view row a key, complete and read by nobody."""
    run, layout = store.begin_generation(group, columns)
    kinds = columns["ticket_names"]
    values = {"hours": [Decimal(hours)] * len(keys), "since": [None] * len(keys)}
    chosen = {name: values[name] for name in kinds if name in values}
    store.target(layout.views["ticket_names"].view).append(rows(kinds, ticket_id=list(keys), **chosen))
    store.index_generation(group, layout)
    with store.transaction() as connection:
        runs.set_progress(connection, run, {"ticket": {0: to}})
        runs.update(connection, run, status=BUILT)
    return run, layout


def test_a_first_generation_has_nothing_to_be_compared_with(store):
    built(store, "a")
    with pytest.raises(NotComparable, match="no generation of projection group 'tickets' serves yet"):
        diff(SimpleNamespace(store=store), GROUP)


@pytest.mark.both_databases
def test_an_outlook_says_what_a_new_generation_takes_and_writes_nothing(store):
    assert not store.is_prepared() or outlook(store, GROUP, COLUMNS) is None
    run, _ = served(store)
    store.read_only()
    assert outlook(store, GROUP, COLUMNS).refused is None
    found = outlook(store, NEWER, COLUMNS)
    assert (found.refused.code, found.built, found.views, found.seconds) == ("definition-changed", 1, {}, None)
    assert found.bytes == store.size(run) > 0
    keyed = ProjectionGroup("tickets", [replace(ticket_names, key=("hours",))], version=2)
    changed = outlook(store, keyed, {"ticket_names": COLUMNS["ticket_names"] | {"since": ColumnType("long")}})
    before = "DATE" if store.dialect.has_exact_types else "TEXT"
    assert changed.views == {
        "ticket_names": ["its key was ticket_id and is hours", f"its column since was {before} and is BIGINT"]
    }
    with pytest.raises(ProjectionError):
        store.record(run, status=RETIRED)


def shown(store):
    with store.looking() as connection:
        return list(connection.scalars(sa.text("SELECT ticket_id FROM ticket_names ORDER BY ticket_id")))


def statuses(store):
    return {state.run.generation: state.status for state in store.states("tickets")}


@pytest.mark.both_databases
def test_a_runs_table_of_an_earlier_release_is_given_its_new_columns_and_keeps_its_rows(store):
    served(store)
    with store.transaction() as connection:
        table = own_tables(connection).runs
        name = connection.dialect.identifier_preparer.format_table(table)
        for column in ("version", "holder", "built", "paused", "held"):
            connection.execute(sa.text(f"ALTER TABLE {name} DROP COLUMN {column}"))
    store.prepare()
    with store.transaction() as connection:
        create_own_tables(connection)
    (state,) = store.states("tickets")
    assert (state.run.generation, state.run.version, state.status) == (1, None, SERVING)
    assert (state.paused, state.held, state.built, state.progress) == (False, False, {}, {"ticket": {0: 0}})
    refuse_changed(store, NEWER, COLUMNS)
    store.generation(GROUP, 1, COLUMNS)


def test_a_generation_that_is_behind_does_not_serve(store):
    first, layout = built(store, "old", to=7)
    assert store.switch(GROUP, first, layout)
    second, its_layout = built(store, "new", to=6)
    assert not store.switch(GROUP, second, its_layout)
    assert (shown(store), statuses(store)) == (["old"], {1: SERVING, 2: BUILT})
    with store.transaction() as connection:
        runs.set_progress(connection, second, {"ticket": {0: 7}, "another": {0: 1}})
    assert store.switch(GROUP, second, its_layout)
    assert (shown(store), statuses(store)) == (["new"], {1: RETIRED, 2: SERVING})


def test_a_topic_that_was_made_anew_does_not_keep_a_generation_from_serving(store):
    first, layout = built(store, "old", to=7)
    store.switch(GROUP, first, layout)
    second, its_layout = built(store, "new", to=2)
    assert store.switch(GROUP, second, its_layout, recreated={"ticket": {0: 7}})


def test_who_has_lost_the_generation_cannot_let_it_serve(store):
    run, layout = built(store, "new")
    store.claim(run)
    with raises(ProjectionError, code="run-superseded"):
        store.switch(GROUP, run, layout)
    assert statuses(store) == {1: BUILT}


def test_a_retired_generation_serves_again_and_the_views_follow(store):
    first, layout = built(store, "old", to=5)
    store.switch(GROUP, first, layout)
    second, its_layout = built(store, "new", to=5, group=NEWER)
    store.switch(NEWER, second, its_layout)
    assert newest(store, GROUP, RETIRED, remedy="").generation == 1
    assert store.switch(GROUP, store.claim(first), layout)
    assert (shown(store), statuses(store)) == (["old"], {1: SERVING, 2: RETIRED})


def test_a_generation_of_another_definition_is_not_taken_for_ours(store):
    built(store, "old")
    with raises(
        ProjectionError, code="generation-missing", match=r"built by another one \(generation 1, version 1\)"
    ) as caught:
        newest(store, NEWER, BUILT, remedy="build it")
    assert caught.value.remedy == "build it"
    with raises(ProjectionError, code="generation-missing"):
        store.generation(GROUP, 9, COLUMNS)
    with pytest.raises(DefinitionChanged):
        store.generation(NEWER, 1, COLUMNS)


def test_a_changed_definition_under_a_version_that_has_served_is_refused(store):
    served(store)
    changed = ProjectionGroup("tickets", [ticket_names])
    refuse_changed(store, changed, COLUMNS)
    other = {"ticket_names": {"ticket_id": COLUMNS["ticket_names"]["ticket_id"]}}
    with store.transaction() as connection:
        (state,) = runs.states(connection, "tickets")
        runs.set_built(connection, state.run, {"columns": {name: list(found) for name, found in COLUMNS.items()}})
    with pytest.raises(DefinitionChanged):
        refuse_changed(store, changed, other)
    with store.transaction() as connection:
        runs.update(connection, state.run, fingerprint="another")
    with raises(DefinitionChanged, remedy="write version=2"):
        refuse_changed(store, changed, COLUMNS)
    refuse_changed(store, NEWER, COLUMNS)


@pytest.mark.both_databases
def test_retired_generations_are_dropped_and_others_are_not(store):
    first, layout = built(store, "old")
    store.switch(GROUP, first, layout)
    second, its_layout = built(store, "new")
    store.switch(GROUP, second, its_layout)
    built(store, "next")
    with store.exclusive("tickets", role=runner_of(first)), pytest.raises(RunAlreadyActive):
        drop(store, "tickets")
    with store.exclusive("tickets", role=REBUILDER), pytest.raises(RunAlreadyActive):
        drop(store, "tickets")
    with raises(ProjectionError, code="generation-missing", match="no generation 2 that does not serve"):
        drop(store, "tickets", generation=2)
    assert drop(store, "tickets") == [1]
    assert drop(store, "tickets", generation=3) == [3]
    assert (drop(store, "tickets"), statuses(store), shown(store)) == ([], {2: SERVING}, ["new"])


def test_a_runner_stands_still_while_its_run_is_paused(store):
    run, _ = served(store)
    standing = Standing(store, run)
    assert standing.may_go_on()
    assert store.set_paused("tickets", paused=True) == store.serving_state("tickets").run
    assert not standing.may_go_on()
    assert store.generations()[0]["paused"]
    store.set_paused("tickets", paused=False)
    assert standing.may_go_on()


def test_a_pause_outlives_a_cut_over(store):
    first, layout = built(store, "old")
    store.switch(GROUP, first, layout)
    store.set_paused("tickets", paused=True)
    second, its_layout = built(store, "new")
    store.switch(GROUP, second, its_layout)
    assert [state.paused for state in store.states("tickets")] == [False, True]


@pytest.mark.both_databases
def test_a_runner_waits_for_a_cut_over_that_lives_and_not_for_one_that_was_killed(store):
    run, _ = served(store)
    standing = Standing(store, run)
    with store.exclusive("tickets", role=REBUILDER), hold(store, run):
        assert not standing.may_go_on()
    assert standing.may_go_on()
    with store.transaction() as connection:
        runs.update(connection, run, held=True)  # what a killed one leaves
    assert standing.may_go_on()
    with rebuilding(store, "tickets"):
        assert standing.may_go_on()  # though there is another one now


def test_a_runner_whose_generation_serves_no_more_is_told(store):
    first, layout = built(store, "old")
    store.switch(GROUP, first, layout)
    standing = Standing(store, first)
    second, its_layout = built(store, "new")
    store.switch(GROUP, second, its_layout)
    with pytest.raises(RunRetired):
        standing.may_go_on()
    drop(store, "tickets")
    with pytest.raises(RunRetired):
        standing.may_go_on()


@pytest.mark.both_databases
def test_the_status_names_who_keeps_a_generation_while_it_does(store):
    run, _ = served(store)
    run = store.claim(run)
    assert store.generations()[0]["holder"] is None
    with store.exclusive("tickets", role=runner_of(run)):
        assert "process " in store.generations()[0]["holder"]


@pytest.mark.both_databases
def test_rows_that_differ_are_shown_with_their_key_and_both_sides(store):
    first, layout = built(store, "a", "b", "gone", hours="1")
    store.switch(GROUP, first, layout)
    narrower = {"ticket_names": {c: kind for c, kind in COLUMNS["ticket_names"].items() if c != "since"}}
    _, its_layout = built(store, "a", "new", columns=narrower, hours="1")
    view = its_layout.views["ticket_names"]
    store.target(view.view).append(rows(narrower["ticket_names"], ticket_id=["b"], hours=[Decimal(2)]))
    common = comparison.common_columns(store, first, its_layout)
    assert common == {"ticket_names": ("ticket_id", "hours")}
    copies = comparison.Copies(store, first, its_layout, common)
    assert copies.take() == {"ticket": {0: 5}}
    found = copies.against_stored("ticket_names").differing
    copies.drop()
    seen = {
        row.key["ticket_id"]: tuple(side and Decimal(side["hours"]) for side in (row.one, row.other)) for row in found
    }
    assert seen == {"b": (Decimal(1), Decimal(2)), "gone": (Decimal(1), None), "new": (None, Decimal(1))}


@pytest.mark.both_databases
def test_rows_whose_key_is_null_in_part_are_told_apart(store):
    _, layout = built(store, "t")
    view = layout.views["ticket_names"].view
    with store.transaction() as connection:
        layout.views["ticket_names"].live_copy.create(connection)
    found = comparison.differing_rows(
        store, layout.views["ticket_names"].live_copy, view, key=("ticket_id", "since"), columns=list(view.c.keys())
    )
    assert [(row.key, row.one) for row in found] == [({"ticket_id": "t", "since": None}, None)]
    assert found[0].other["ticket_id"] == "t"
