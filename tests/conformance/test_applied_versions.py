"""A service waits for its own write in the views' database alone: no Spark, no broker, on SQLite and on PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from eventstore.errors import InvalidIdentifier
from projections import AppliedVersions
from projections.errors import InvalidDefinition, NoServingGeneration, NotYetApplied
from tests.conformance.ticket_batches import COLUMNS, GROUP, batch, served, stage_ticket

pytestmark = pytest.mark.postgres_in_faults

SOON = {"timeout": 0.05}


@pytest.fixture
def tickets(url, store):
    with AppliedVersions(url, group="tickets", table="tickets") as versions:
        yield versions


def apply(store, run, layout, version, keys=("t1",)):
    batch(store, run, layout, lambda: stage_ticket(store, layout, "t1", version), *keys, to=version + 1)


@pytest.mark.both_databases
def test_a_version_that_is_applied_is_answered_at_once_and_so_is_an_earlier_one(store, tickets):
    run, layout = served(store)
    for version in (0, 1, 2):
        apply(store, run, layout, version)
    assert tickets.wait_for("ticket-t1", 2, **SOON) == 2
    assert tickets.wait_for("ticket-t1", 0, **SOON) == 2


def test_a_version_that_comes_meanwhile_ends_the_wait(store, tickets):
    run, layout = served(store)
    apply(store, run, layout, 0)
    found = []
    waiting = threading.Thread(target=lambda: found.append(tickets.wait_for("ticket-t1", 1, timeout=60.0)))
    waiting.start()
    apply(store, run, layout, 1)
    waiting.join(60.0)
    assert found == [1]


def test_a_version_that_does_not_come_is_told_with_how_far_its_stream_is(store, tickets):
    run, layout = served(store)
    apply(store, run, layout, 0)
    with pytest.raises(NotYetApplied, match="ticket-t1 stands at version 0, and did not reach version 1") as caught:
        tickets.wait_for("ticket-t1", 1, **SOON)
    assert caught.value.version == 0
    assert caught.value.place == "table tickets of group tickets"
    with pytest.raises(NotYetApplied, match="ticket-t9 is not there yet") as caught:
        tickets.wait_for("ticket-t9", 0, **SOON)
    assert caught.value.version is None


@pytest.mark.both_databases
def test_what_a_deletion_did_is_waited_for_too(store, tickets):
    run, layout = served(store)
    apply(store, run, layout, 0)
    with store.transaction() as connection:
        connection.execute(sa.update(layout.tables["tickets"].state).values(_deleted=True, _pos=1))
    assert tickets.wait_for("ticket-t1", 1, **SOON) == 1


def test_the_generation_that_serves_now_is_asked(store, tickets):
    run, layout = served(store)
    apply(store, run, layout, 0)
    assert tickets.version_of("ticket-t1") == 0
    run, layout = store.begin_generation(GROUP, COLUMNS)
    store.index_generation(GROUP, layout)
    with store.transaction() as connection:
        connection.execute(sa.insert(layout.tables["tickets"].state).values(ticket_id="t1", _pos=7))
    store.serve(GROUP, run, layout, {"ticket": {0: 9}})
    assert tickets.version_of("ticket-t1") == 7


def test_what_cannot_be_waited_for_is_refused(url, store, tickets):
    with pytest.raises(NoServingGeneration):
        tickets.wait_for("ticket-t1", 0, **SOON)
    served(store)
    with pytest.raises(InvalidIdentifier):
        tickets.wait_for("no stream", 0, **SOON)
    with AppliedVersions(url, group="tickets", table="orders") as orders:
        with pytest.raises(InvalidDefinition, match="group 'tickets' has no table 'orders'") as caught:
            orders.wait_for("ticket-t1", 0, **SOON)
    assert caught.value.remedy == "its tables are: customers, tickets"


@pytest.mark.parametrize(
    ("table", "stream", "others"),
    [("tickets", "payment-t1", "the group has none"), ("customers", "ticket-t1", "tickets")],
)
def test_a_table_that_does_not_hold_such_streams_is_refused(url, store, tickets, table, stream, others):
    run, layout = served(store)
    store.record(run, built={"categories": {"tickets": "ticket"}})
    apply(store, run, layout, 0)
    assert tickets.wait_for("ticket-t1", 0, **SOON) == 0
    with AppliedVersions(url, group="tickets", table=table) as versions:
        with pytest.raises(InvalidDefinition, match=f"is not folded from streams of '{stream[:-3]}'") as caught:
            versions.wait_for(stream, 0, **SOON)
    assert caught.value.remedy == f"give the table that is: {others}"


def test_waiting_loads_no_spark():
    program = "import sys; from projections import AppliedVersions\n"
    program += "AppliedVersions('sqlite:///x.db', group='g', table='t').close(); print('pyspark' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr
