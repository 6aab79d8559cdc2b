"""Rebuilds that wait for a decision, or read a topic that was made anew."""

from __future__ import annotations

import dataclasses

import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, cut_over, diff, open_runner, rebuild, try_view, verify, view
from projections.errors import OffsetsLost, ProjectionError, RunAlreadyActive
from projections.spark.views.view_functions import view_columns
from projections.stores.locks import VERIFIER
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.errors import raises

RATES = sa.Table("rates", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("rate", sa.Double))
rates = Table.from_changelog(RATES, topic="shop.public.rates")


@view(key="id")
def listed(rates):
    return rates


GROUP = ProjectionGroup("rates", [listed])


@pytest.fixture
def environment(local):
    ChangeWriter(local.log).put(rates, {"id": 1, "rate": 0.1})
    rebuild(local, GROUP)
    return local


def shown(environment):
    with environment.store.looking() as connection:
        return connection.execute(sa.text("SELECT id, rate FROM listed ORDER BY id")).all()


def test_the_run_stops_and_a_rebuild_reads_the_new_topic_from_its_beginning(environment, monkeypatch):
    environment.log._topics.clear()
    changes = ChangeWriter(environment.log)
    for number in (7, 8, 9):
        changes.put(rates, {"id": number, "rate": 1.5})
    monkeypatch.setattr(MemoryLog, "topic_ids", lambda self, topics: dict.fromkeys(topics, "another"))
    with pytest.raises(OffsetsLost, match="deleted and created again"), open_runner(environment, GROUP):
        pass
    assert rebuild(environment, GROUP).serves
    assert [row.id for row in shown(environment)] == [7, 8, 9]
    with open_runner(environment, GROUP) as runner:
        changes.put(rates, {"id": 7, "rate": None})
        runner.catch_up()
    assert shown(environment)[0] == (7, None)


def test_a_runner_that_works_notices_it_though_the_new_topic_is_longer(environment, monkeypatch):
    monkeypatch.setattr("projections.lifecycle.between_batches.LOOK_AT_TOPICS_SECONDS", 0.0)
    changes = ChangeWriter(environment.log)
    with open_runner(environment, GROUP) as runner:
        changes.put(rates, {"id": 1, "rate": 0.2})
        runner.catch_up()
        environment.log._topics.clear()
        for number in (7, 8, 9):
            changes.put(rates, {"id": number, "rate": 1.5})
        monkeypatch.setattr(MemoryLog, "topic_ids", lambda self, topics: dict.fromkeys(topics, "another"))
        with pytest.raises(OffsetsLost, match="deleted and created again"):
            runner.catch_up()
    assert shown(environment) == [(1, 0.2)]


def test_views_with_floating_point_numbers_are_verified_row_by_row_and_have_no_digest(environment):
    verdict = verify(environment, GROUP)["listed"]
    assert (verdict.equal, verdict.digest, verdict.rows) == (True, None, 1)
    with environment.store.transaction() as connection:
        connection.execute(sa.text('UPDATE "factfold_rates_1$view_listed" SET rate = 0.1000001'))
    verdict = verify(environment, GROUP)["listed"]
    assert (verdict.equal, verdict.differing_keys) == (False, (1,))


@view(key="id")
def doubled(rates):
    return rates.selectExpr("id", "2 * rate AS rate", "'new' AS kind")


def test_a_changed_view_is_tried_on_all_rows_or_a_sample_and_leaves_nothing_behind(environment):
    tried = dataclasses.replace(doubled, name="listed")
    changes = ChangeWriter(environment.log)
    for number in (2, 3):
        changes.put(rates, {"id": number, "rate": 0.0})
    with open_runner(environment, GROUP) as runner:
        runner.catch_up()
    tables = sa.inspect(environment.store._engine).get_table_names()
    changed = ProjectionGroup("rates", [tried], version=2)
    whole = try_view(environment, changed, "listed")
    assert (whole.serving_rows, whole.new_rows, whole.added, whole.removed) == (3, 3, ("kind",), ())
    assert [(row.key, row.one, row.other) for row in whole.differing] == [
        ({"id": 1}, {"id": 1, "rate": 0.1}, {"id": 1, "rate": 0.2})
    ]
    assert whole.serving_seconds is not None
    sample = try_view(environment, changed, "listed", sample=2)
    assert (sample.serving_rows, sample.new_rows, sample.equal) == (2, 2, False)
    assert try_view(environment, GROUP, "listed").equal
    fewer = dataclasses.replace(listed, function=lambda rates: rates.where("id > 1"), name="others")
    unknown = try_view(environment, ProjectionGroup("rates", [fewer]), "others")
    assert (unknown.serving_rows, unknown.new_rows, unknown.equal) == (None, 2, False)
    assert sa.inspect(environment.store._engine).get_table_names() == tables
    assert len(shown(environment)) == 3


def test_a_group_is_verified_by_one_process_at_a_time(environment):
    with environment.store.exclusive("rates", role=VERIFIER), pytest.raises(RunAlreadyActive, match="verifies"):
        verify(environment, GROUP)


def test_a_runner_asks_for_its_row_once_when_it_opens(environment, monkeypatch):
    asked, state = [], SqliteTableStore.state
    monkeypatch.setattr(SqliteTableStore, "state", lambda self, run: asked.append(run) or state(self, run))
    with open_runner(environment, GROUP):
        assert len(asked) == 1


def test_a_cut_over_asks_for_the_topics_ids_before_it_holds_the_serving_run_and_not_again(environment, monkeypatch):
    rebuild(environment, GROUP, cut_over=False)
    held, asked, ids, switch = [], [], MemoryLog.topic_ids, SqliteTableStore.switch
    tries = iter([False, False])
    monkeypatch.setattr(SqliteTableStore, "set_held", lambda self, run, *, held: None)
    monkeypatch.setattr(MemoryLog, "topic_ids", lambda self, topics: asked.append(topics) or ids(self, topics))
    monkeypatch.setattr(
        SqliteTableStore,
        "switch",
        lambda self, *given, **named: (
            held.append(len(asked)) or (next(tries, None) is None and switch(self, *given, **named))
        ),
    )
    cut_over(environment, GROUP)
    assert len(held) == 3
    assert held[0] == held[-1] == len(asked)


def test_a_paused_runner_holds_its_run_and_goes_on_once_it_may(environment):
    with open_runner(environment, GROUP) as runner:
        ChangeWriter(environment.log).put(rates, {"id": 2, "rate": 0.5})
        environment.store.set_paused(GROUP.name, paused=True)
        assert runner.run_once() is None
        with raises(ProjectionError, code="run-paused", match="the run is paused"):
            runner.catch_up()
        with pytest.raises(RunAlreadyActive), open_runner(environment, GROUP):
            pass
        assert [row.id for row in shown(environment)] == [1]
        environment.store.set_paused(GROUP.name, paused=False)
        runner.catch_up()
    assert [row.id for row in shown(environment)] == [1, 2]


# ---- rows of a rebuild that differ from the serving ones though the definition is the same


bank_rates = Table.from_changelog(
    sa.Table(
        "bank_rates", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("rate", sa.Integer)
    ),
    topic="bank.public.rates",
)


@view(key="id")
def current_rates(bank_rates):
    return bank_rates.select("id", "rate")


UNCHANGED = ProjectionGroup("current_rates", [current_rates])


@pytest.fixture
def drifted(local):
    """A group that serves two rates, one of which was changed behind its back."""
    changes, store = ChangeWriter(local.log), local.store
    for number in (1, 2):
        changes.put(bank_rates, {"id": number, "rate": number})
    rebuild(local, UNCHANGED)
    layout = store.layout(UNCHANGED, store.serving_state(UNCHANGED.name).run, view_columns(local.spark, UNCHANGED))
    kept = layout.views["current_rates"].view
    with store.transaction() as connection:
        connection.execute(sa.update(kept).where(kept.c.id == 1).values(rate=9))
    return local


def shown_rates(drifted):
    with drifted.store.looking() as connection:
        return {row.id: row.rate for row in connection.execute(sa.text("SELECT id, rate FROM current_rates"))}


def test_the_new_rows_of_an_unchanged_definition_wait_for_a_decision(drifted):
    report = rebuild(drifted, UNCHANGED)
    assert (report.serves, report.withheld, report.differs) == (False, True, True)
    assert shown_rates(drifted) == {1: 9, 2: 2}
    (row,) = diff(drifted, UNCHANGED)["current_rates"].differing
    assert (row.one["rate"], row.other["rate"]) == (9, 1)
    cut_over(drifted, UNCHANGED)
    assert shown_rates(drifted) == {1: 1, 2: 2}


def test_a_second_rebuild_withholds_the_same_generation_until_the_cut_over_is_asked_for(drifted):
    first, again = rebuild(drifted, UNCHANGED), rebuild(drifted, UNCHANGED)
    assert (again.generation, again.withheld) == (first.generation, True)
    forced = rebuild(drifted, UNCHANGED, cut_over=True)
    assert (forced.serves, forced.withheld) == (True, False)
    assert shown_rates(drifted) == {1: 1, 2: 2}


def test_equal_rows_and_rows_of_a_changed_definition_serve_at_once(drifted):
    changed = rebuild(drifted, dataclasses.replace(UNCHANGED, version=2))
    assert (changed.serves, changed.differs) == (True, True)
    equal = rebuild(drifted, dataclasses.replace(UNCHANGED, version=2))
    assert (equal.serves, equal.differs) == (True, False)
