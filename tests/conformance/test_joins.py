"""Every kind of join, after every kind of change on either side: what DuckDB makes of the same rows in SQL."""

from __future__ import annotations

import json

import duckdb
import pytest
import sqlalchemy as sa

from projections import Environment, open_runner, rebuild, verify
from projections.reference import newest_per_key
from projections.spark.session import small_batch_session
from projections.tablestore.sqlite import SqliteTableStore
from projections.testing.change_events import ChangeWriter
from projections.testing.memory_log import MemoryLog
from tests.conformance.join_views import GROUP, SQL, TABLES, customers, employees, orders, places, profiles, regions


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def store(request, tmp_path):
    if request.param == "SQLite":
        found = SqliteTableStore(tmp_path / "views.db")
    else:
        from projections.tablestore.postgres import PostgresTableStore

        found = PostgresTableStore(request.getfixturevalue("database")())
    found.prepare()
    yield found
    found.close()


@pytest.fixture
def environment(store, spark):
    return Environment(spark, small_batch_session(spark), store, MemoryLog())


@pytest.fixture
def changes(environment):
    return ChangeWriter(environment.log)


def order(id, customer=1, place=("NO", "Oslo"), seller=1, amount=10):
    return {"id": id, "customer_id": customer, "country_name": place[0], "city_name": place[1], "seller_id": seller,
            "amount": amount}  # fmt: skip


def customer(id, region=1, name="Ann"):
    return {"id": id, "region_id": region, "full_name": name}


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
    "a root row is inserted again": lambda w: w.put(orders, order(3, customer=1, amount=33)),
    "a root row's key changes": lambda w: [w.delete(orders, {"id": 6}), w.put(orders, order(66, customer=2))],
    "a parent's value changes": lambda w: w.put(customers, customer(1, name="Anna")),
    "a parent's own reference moves": lambda w: w.put(customers, customer(1, region=2, name="Anna")),
    "a parent's own reference becomes null": lambda w: w.put(customers, customer(1, region=None, name="Anna")),
    "a parent is deleted": lambda w: w.delete(customers, {"id": 1}),
    "a parent is inserted again": lambda w: w.put(customers, customer(1, name="Ann again")),
    "a parent's key changes": lambda w: [w.delete(customers, {"id": 2}), w.put(customers, customer(77, region=2))],
    "a grandparent is deleted": lambda w: w.delete(regions, {"id": 1}),
    "a grandparent is inserted again": lambda w: w.put(regions, {"id": 1, "planet_id": 2, "region_name": "north"}),
    "a partner of one to one goes": lambda w: w.delete(profiles, {"id": 1}),
    "a partner of one to one comes": lambda w: w.put(profiles, {"id": 3, "note_name": "third"}),
    "a composite key is deleted": lambda w: w.delete(places, {"country_name": "NO", "city_name": "Oslo"}),
    "a boss gets another boss": lambda w: w.put(employees, {"id": 1, "boss_id": 2, "staff_name": "one"}),
    "both sides change at once": lambda w: [w.put(orders, order(1, customer=77)), w.put(customers, customer(77))],
    "a change comes twice": lambda w: w.put(orders, order(1, customer=77), at=w.position - 1),
    "an old change comes late": lambda w: w.put(orders, order(1, customer=2, amount=99), at=1_003),
    "an old change of a deleted row comes late": lambda w: w.put(regions, {"id": 9, "planet_id": 1, "region_name": "x"},
                                                                at=1_001),
    "nothing refers to a parent any more": lambda w: [w.put(orders, order(i, customer=None)) for i in (1, 3, 66)],
}  # fmt: skip


def newest_rows(log, table):
    records = [(offset, key.decode(), value) for offset, (key, value) in enumerate(log.records(table.topic))]
    return newest_per_key(records).values()


def expected(log):
    """Every view by its SQL, over the newest row of every key."""
    with duckdb.connect() as engine:
        for table in TABLES:
            name = table.topic.rpartition(".")[2]
            kinds = ", ".join(f"{c} {'TEXT' if t.kind == 'string' else 'BIGINT'}" for c, t in table.columns.items())
            engine.execute(f"CREATE TABLE {name} ({kinds})")
            rows = [[row[c] for c in table.columns] for row in newest_rows(log, table)]
            if rows:
                engine.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(table.columns))})", rows)
        return {view.name: in_order(engine.execute(SQL[view.name]).fetchall()) for view in GROUP.kept}


def stored(environment):
    with environment.store.transaction() as connection:
        run_views = {view.name for view in GROUP.views}
        return {name: in_order(connection.execute(sa.text(f"SELECT * FROM {name}")).all()) for name in run_views}


def in_order(rows):
    return sorted((tuple(row) for row in rows), key=json.dumps)


def assert_views_are_right(environment, *, after):
    right, found = expected(environment.log), stored(environment)
    wrong = {name: (rows, right[name]) for name, rows in found.items() if rows != right[name]}
    assert not wrong, f"after {after}: {wrong}"


def test_every_join_is_right_after_every_change(environment, changes):
    first_rows(changes)
    rebuild(environment, GROUP)
    assert_views_are_right(environment, after="the rebuild")
    with open_runner(environment, GROUP) as runner:
        for happening, step in STEPS.items():
            step(changes)
            runner.catch_up()
            assert_views_are_right(environment, after=happening)
    verdicts = verify(environment, GROUP)
    assert {name for name, verdict in verdicts.items() if not verdict.equal} == set()
    rebuild(environment, GROUP)
    assert_views_are_right(environment, after="another rebuild")
