"""Every kind of join, after every kind of change on either side: what DuckDB makes of the same rows in SQL."""

from __future__ import annotations

import random

import pytest
import sqlalchemy as sa

from projections import Environment, ProjectionGroup, open_runner, rebuild, verify
from projections.spark.session import small_batch_session
from projections.spark.views.view_functions import view_columns
from projections.stores import affected
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance import view_oracle
from tests.conformance.followed_views import ROWS_STAY, in_a_file
from tests.conformance.join_views import (
    FEW,
    GROUP,
    NAMED,
    SQL,
    TABLES,
    chain_of_five,
    customers,
    employees,
    orders,
    places,
    planets,
    profiles,
    regions,
    right_join,
    stars,
    visits,
)
from tests.conformance.relational_batches import RelationalBatches, answerable
from tests.tiers import first_of

pytestmark = pytest.mark.postgres_in_faults


def order(id, customer=1, place=("NO", "Oslo"), seller=1, amount=10):
    return {"id": id, "customer_id": customer, "country_name": place[0], "city_name": place[1], "seller_id": seller,
            "amount": amount}  # fmt: skip


def customer(id, region=1, name="Ann"):
    return {"id": id, "region_id": region, "full_name": name}


def planet(id, star):
    return {"id": id, "star_id": star, "planet_name": f"planet {id}"}


def visit_key(customer, region):
    return {"customer_id": customer, "region_id": region}


def visit(customer, region, grade=1):
    return {**visit_key(customer, region), "grade": grade}


def first_rows(changes):
    """A few rows of every table, some of which nothing refers to, and some that refer to nothing."""
    for table in TABLES:
        for number in (1, 2):
            changes.put(table, {c: f"{c} {number}" if c.endswith("name") else number for c in table.columns})
    for place in (("NO", "Oslo"), ("NO", "Bergen")):
        changes.put(places, {"country_name": place[0], "city_name": place[1], "zip": 1})
    for row in (order(1), order(2), order(3, customer=2, seller=None), order(4, customer=None), order(5, customer=9)):
        changes.put(orders, row)
    changes.put(customers, customer(3, region=None))


STEPS = {
    "a root row is inserted": lambda w: w.put(orders, order(6, customer=2)),
    "a root row is inserted whose parent is not there": lambda w: w.put(orders, order(7, customer=8)),
    "its parent arrives after it": lambda w: w.put(customers, customer(8)),
    "a value of a root row changes": lambda w: w.put(orders, order(1, amount=11)),
    "a root row falls out of a filter": lambda w: w.put(orders, order(1, amount=2)),
    "a reference moves": lambda w: w.put(orders, order(2, customer=2, seller=2, place=("NO", "Bergen"))),
    "a reference becomes null": lambda w: w.put(orders, order(2, customer=None, seller=None, place=(None, "Bergen"))),
    "a reference points to nothing": lambda w: w.put(orders, order(2, customer=77, seller=77, place=("NO", "Rome"))),
    "a root row is deleted": lambda w: w.delete(orders, {"id": 3}),
    "an old change of a deleted root row comes late": lambda w: w.put(orders, order(3, customer=2), at=1_004),
    "a root row is inserted again": lambda w: w.put(orders, order(3, customer=1, amount=33)),
    "a root row's key changes": lambda w: [w.delete(orders, {"id": 6}), w.put(orders, order(66, customer=2))],
    "a filter takes one order of a customer and drops another": lambda w: [
        w.put(orders, order(12, customer=3, seller=2)), w.put(orders, order(13, customer=3, amount=1))],
    "a parent's value changes": lambda w: w.put(customers, customer(1, name="Anna")),
    "a parent's own reference moves": lambda w: w.put(customers, customer(1, region=2, name="Anna")),
    "a parent's change comes twice": lambda w: w.put(customers, customer(1, region=2, name="Anna"), at=w.position),
    "an old change of a parent comes late": lambda w: w.put(customers, customer(1, name="late"), at=1_002),
    "a parent's own reference becomes null": lambda w: w.put(customers, customer(1, region=None, name="Anna")),
    "a parent is deleted": lambda w: w.delete(customers, {"id": 1}),
    "an old change of a deleted parent comes late": lambda w: w.put(customers, customer(1, name="gone"), at=1_003),
    "a parent is inserted again": lambda w: w.put(customers, customer(1, name="Ann again")),
    "a parent's key changes": lambda w: [w.delete(customers, {"id": 2}), w.put(customers, customer(77, region=2))],
    "a grandparent is deleted": lambda w: w.delete(regions, {"id": 1}),
    "a grandparent is inserted again": lambda w: w.put(regions, {"id": 1, "planet_id": 2, "region_name": "north"}),
    "a planet goes to another star": lambda w: w.put(planets, planet(2, star=1)),
    "a planet is deleted": lambda w: w.delete(planets, {"id": 2}),
    "a planet is inserted again": lambda w: w.put(planets, planet(2, star=2)),
    "a star's value changes": lambda w: w.put(stars, {"id": 2, "star_name": "Rigel"}),
    "a star is deleted": lambda w: w.delete(stars, {"id": 2}),
    "a star is inserted again": lambda w: w.put(stars, {"id": 2, "star_name": "Vega"}),
    "a planet's star becomes null": lambda w: w.put(planets, planet(2, star=None)),
    "a link comes": lambda w: w.put(visits, visit(1, 2)),
    "a link's value changes": lambda w: w.put(visits, visit(1, 2, grade=5)),
    "a link to nothing comes": lambda w: w.put(visits, visit(1, 78)),
    "a link's key changes": lambda w: [w.delete(visits, visit_key(1, 2)), w.put(visits, visit(77, 2))],
    "a link is deleted": lambda w: w.delete(visits, visit_key(1, 78)),
    "a link is inserted again": lambda w: w.put(visits, visit(1, 78, grade=7)),
    "what links point to comes": lambda w: w.put(regions, {"id": 78, "planet_id": 2, "region_name": "far"}),
    "what links point to is deleted": lambda w: w.delete(customers, {"id": 1}),
    "what links point to is inserted again": lambda w: w.put(customers, customer(1, name="Ann once more")),
    "a partner of one to one goes": lambda w: w.delete(profiles, {"id": 1}),
    "a partner of one to one comes": lambda w: w.put(profiles, {"id": 3, "note_name": "third"}),
    "a composite key is deleted": lambda w: w.delete(places, {"country_name": "NO", "city_name": "Oslo"}),
    "a boss gets another boss": lambda w: w.put(employees, {"id": 1, "boss_id": 2, "staff_name": "one"}),
    "both sides change at once": lambda w: [w.put(orders, order(1, customer=77)), w.put(customers, customer(77))],
    "a change comes twice": lambda w: w.put(orders, order(1, customer=77), at=w.position - 1),
    "an old change comes late": lambda w: w.put(orders, order(1, customer=2, amount=99), at=1_003),
    "a row comes first with an old position": lambda w: w.put(regions, {"id": 9, "planet_id": 1, "region_name": "x"},
                                                             at=1_001),
    "nothing refers to a parent any more": lambda w: [w.put(orders, order(i, customer=None)) for i in (1, 3, 66)],
}  # fmt: skip


def assert_views_are_right(store, log, *, after, group=GROUP):
    view_oracle.assert_views_are_right(store, log, group, SQL, {**NAMED, "bosses": employees}, after=after)


@pytest.fixture(scope="module")
def columns(spark):
    return view_columns(spark, GROUP)


@pytest.fixture(scope="module")
def alone(columns):
    """The views that their queries answer without Spark."""
    return answerable(GROUP, columns)


def check_every_change(store, group, columns):
    log = MemoryLog()
    changes, batches = ChangeWriter(log), RelationalBatches(store, log, group, SQL, columns)
    first_rows(changes)
    for happening, step in {"the first rows": lambda w: None, **STEPS}.items():
        step(changes)
        batches.catch_up()
        assert_views_are_right(store, log, after=happening, group=group)


@pytest.mark.postgres_in_faults
def test_every_join_is_right_after_every_change(store, columns, alone):
    assert len(alone.views) > 12
    check_every_change(store, alone, columns)


# Those in which a planted fault shows: not all of them for each fault, which takes seconds.
HARD = ProjectionGroup("hard_joins", [right_join, chain_of_five])
MUTANTS = {
    "only new partitions are reached": (affected, "_partitions", lambda role, destroyed: _of_staged(role)),
    "the end of a chain is not walked from": (affected, "_referencing", lambda *given: _not_from_stars(*given)),
    "rows that are gone stay": ROWS_STAY,
}


_REFERENCING = affected._referencing


def _not_from_stars(role, columns, target):
    found = _REFERENCING(role, columns, target)
    return found.where(sa.false()) if target.table.topic == stars.topic else found


def _of_staged(role):
    return [sa.select(*role.reached_by.of(role.staged))]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_fault_shows(mutant, tmp_path, columns, monkeypatch):
    module, name, planted = MUTANTS[mutant]
    monkeypatch.setattr(module, name, planted)
    with in_a_file(tmp_path) as store, pytest.raises(AssertionError, match="after"):
        check_every_change(store, HARD, {view.name: columns[view.name] for view in HARD.all_views})


def random_change(cuts, changes):
    table = cuts.choice(TABLES)
    key = {c: _value(cuts, c) for c in table.key}
    late = changes.position - cuts.randrange(20) if cuts.random() < 0.1 else None
    if cuts.random() < 0.25:
        changes.delete(table, key, at=late)
    else:
        values = {c: None if cuts.random() < 0.2 else _value(cuts, c) for c in table.payload}
        changes.put(table, {**key, **values}, at=late)


def _value(cuts, column):
    return f"{column} {cuts.randrange(2)}" if column.endswith("name") else cuts.randrange(5)


@pytest.mark.both_databases
@first_of("seed", 0, 1, 2, indirect=False)
def test_every_join_is_right_through_random_histories_cut_at_random(store, columns, alone, seed):
    log, cuts = MemoryLog(), random.Random(seed)
    changes, batches = ChangeWriter(log), RelationalBatches(store, log, alone, SQL, columns)
    for batch in range(12):
        for _ in range(cuts.choice([1, 3, 20])):
            random_change(cuts, changes)
        batches.catch_up()
        assert_views_are_right(store, log, after=f"batch {batch} of seed {seed}", group=alone)


@pytest.mark.postgres_in_faults
def test_spark_gives_the_same_live_and_rebuilt(store, spark):
    environment = Environment(spark, small_batch_session(spark), store, MemoryLog())
    changes, steps = ChangeWriter(environment.log), list(STEPS.items())
    first_rows(changes)
    rebuild(environment, FEW)
    assert_views_are_right(store, environment.log, after="the rebuild", group=FEW)
    with open_runner(environment, FEW) as runner:
        for begun in range(0, len(steps), 25):
            for _, step in steps[begun : begun + 25]:
                step(changes)
            runner.catch_up()
            assert_views_are_right(store, environment.log, after=f"{steps[begun][0]} and what follows", group=FEW)
    verdicts = verify(environment, FEW)
    assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()
