"""Rows of a rebuild that differ from the serving ones though the definition is the same: they do not serve unasked."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import pytest
import sqlalchemy as sa

from projections import Environment, ProjectionGroup, Table, cut_over, diff, rebuild, view
from projections.spark.views.view_functions import view_columns
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import ChangeWriter, MemoryLog

rates = Table.from_changelog(
    sa.Table("rates", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("rate", sa.Integer)),
    topic="bank.public.rates",
)


@view(key="id")
def current_rates(rates):
    return rates.select("id", "rate")


GROUP = ProjectionGroup("current_rates", [current_rates])


@pytest.fixture
def environment(small, tmp_path):
    """A group that serves two rates, one of which was changed behind its back."""
    with closing(SqliteTableStore(tmp_path / "views.db")) as store:
        store.prepare()
        environment = Environment(small, small, store, MemoryLog())
        changes = ChangeWriter(environment.log)
        for number in (1, 2):
            changes.put(rates, {"id": number, "rate": number})
        rebuild(environment, GROUP)
        layout = store.layout(GROUP, store.serving_state(GROUP.name).run, view_columns(small, GROUP))
        kept = layout.views["current_rates"].view
        with store.transaction() as connection:
            connection.execute(sa.update(kept).where(kept.c.id == 1).values(rate=9))
        yield environment


def shown(environment):
    with environment.store.looking() as connection:
        return {row.id: row.rate for row in connection.execute(sa.text("SELECT id, rate FROM current_rates"))}


def test_the_new_rows_of_an_unchanged_definition_wait_for_a_decision(environment):
    report = rebuild(environment, GROUP)
    assert (report.serves, report.withheld, report.differs) == (False, True, True)
    assert shown(environment) == {1: 9, 2: 2}
    (row,) = diff(environment, GROUP)["current_rates"].differing
    assert (row.one["rate"], row.other["rate"]) == (9, 1)
    cut_over(environment, GROUP)
    assert shown(environment) == {1: 1, 2: 2}


def test_a_second_rebuild_withholds_the_same_generation_until_the_cut_over_is_asked_for(environment):
    first, again = rebuild(environment, GROUP), rebuild(environment, GROUP)
    assert (again.generation, again.withheld) == (first.generation, True)
    forced = rebuild(environment, GROUP, cut_over=True)
    assert (forced.serves, forced.withheld) == (True, False)
    assert shown(environment) == {1: 1, 2: 2}


def test_equal_rows_and_rows_of_a_changed_definition_serve_at_once(environment):
    changed = rebuild(environment, dataclasses.replace(GROUP, version=2))
    assert (changed.serves, changed.differs) == (True, True)
    equal = rebuild(environment, dataclasses.replace(GROUP, version=2))
    assert (equal.serves, equal.differs) == (True, False)
