"""A connector repeats what it sent, and a batch ends between an old deletion and its tombstone: the row stays.

A tombstone without its deletion deletes, for compaction may have taken that away; so the row must know beforehand of
one that is to come.
"""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

from projections import Environment, ProjectionGroup, open_runner, rebuild
from projections.spark.session import small_batch_session
from projections.testing.memory_log import ChangeWriter, MemoryLog
from tests.conformance import ticket_batches
from tests.conformance.followed_views import in_a_file
from tests.conformance.join_views import customer, customers, left_join, order, orders
from tests.conformance.view_oracle import stored

GROUP = ProjectionGroup("returned", [left_join])


@pytest.fixture
def sqlite(spark, tmp_path):
    with in_a_file(tmp_path) as store:
        yield Environment(spark, small_batch_session(spark), store, MemoryLog())


def begun(environment):
    """A row that was deleted and is there again; returns the records of its topic from the deletion on."""
    changes = ChangeWriter(environment.log)
    changes.put(customers, customer(1))
    changes.put(orders, order(1))
    changes.delete(orders, {"id": 1})
    changes.put(orders, order(1, amount=7))
    rebuild(environment, GROUP)
    return list(environment.log.records(orders.topic))[1:]


def shown_after(environment, *batches):
    """What the view shows after each batch of records."""
    found = [stored(environment.store, GROUP)["left_join"]]
    with open_runner(environment, GROUP) as runner:
        for records in batches:
            for key, value in records:
                environment.log.append(orders.topic, key, value)
            runner.catch_up()
            found.append(stored(environment.store, GROUP)["left_join"])
    return found


def test_an_old_deletion_that_is_repeated_takes_nothing_away(sqlite):
    deletion, tombstone, row = begun(sqlite)
    found = shown_after(sqlite, [deletion], [tombstone], [row])
    assert found == [[(1, 7, "Ann")]] * 4


def test_nor_does_one_behind_a_newer_change_of_its_batch(sqlite):
    deletion, tombstone, row = begun(sqlite)
    newer = json.loads(row[1])
    newer["after"]["amount"], newer["source"]["lsn"] = 8, newer["source"]["lsn"] + 100
    found = shown_after(sqlite, [(row[0], json.dumps(newer).encode()), deletion], [tombstone])
    assert found[1:] == [[(1, 8, "Ann")]] * 2


def test_a_tombstone_whose_deletion_was_compacted_away_deletes(sqlite):
    deletion, tombstone, row = begun(sqlite)
    assert shown_after(sqlite, [deletion], [tombstone, row], [tombstone])[-1] == []


def stage_deleted(store, layout, identity, version):
    at = [version]
    columns = {"ticket_id": [identity], "_epoch": [0], "_pos": at, "_offset": at, "_deleted": [True]}
    columns["_first"] = at
    store.target(layout.tables["tickets"].staged).append(ticket_batches.rows(ticket_batches.tickets.columns, **columns))


@pytest.mark.both_databases
def test_a_deleted_stream_loses_its_values_and_its_first_event_again_does_not_bring_it_back(store):
    run, layout = ticket_batches.served(store)
    state = layout.tables["tickets"].state

    def batch(stage, *keys, to):
        return ticket_batches.batch(store, run, layout, stage, *keys, to=to)

    def rows():
        with store.transaction() as connection:
            return connection.execute(sa.select(state.c["ticket_id", "status", "_pos", "_deleted"])).all()

    batch(lambda: ticket_batches.stage_ticket(store, layout, "t1", 0), "t1", to=1)
    batch(lambda: stage_deleted(store, layout, "t1", 1), to=2)
    assert rows() == [("t1", "open", 1, True)]
    assert store.let_go(run, layout, before=1 << 40, most=10) == {"tickets": 1}
    assert rows() == [("t1", None, 1, True)]
    assert batch(lambda: ticket_batches.stage_ticket(store, layout, "t1", 0), to=3) == (0, 0)
    assert rows() == [("t1", None, 1, True)]
