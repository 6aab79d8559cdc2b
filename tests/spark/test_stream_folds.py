"""Streams by both folds: a missing event is found by the first version behind it, and one tombstone deletes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from eventstore.event_types import event_type_of
from projections import ProjectionGroup, Table, open_runner, rebuild, verify, view
from projections.errors import EventsMissing, UndecodableRecord
from projections.spark.kinds import Reduction
from projections.testing.memory_log import MemoryLog
from tests.integration.tickets import DECLARED, Ticket
from tests.rows import each_row

RAW = "topic string, partition int, offset bigint, key string, value binary"
REGISTRY = {kind.schema_id: kind.registered for kind in Ticket.event_types.values()}
OPENED, CLOSED = Ticket.Opened(customer_id=1, hours=Decimal("1.5")), Ticket.Closed()
# The versions that come, in their order of arrival, and the first of the last run.
RUNS = {"whole": ([2, 0, 1], 0), "again": ([4, 5, 5, 4], 4), "a gap": ([4, 5, 7], 7), "two gaps": ([9, 3, 5, 8, 6], 8)}

declared = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)
evolved = Table.from_events(Ticket, key="ticket_id")


@view(key="ticket_id")
def declared_tickets(declared):
    return declared


@view(key="ticket_id")
def evolved_tickets(evolved):
    return evolved


def record(version, stream="1"):
    happened = OPENED if version == 0 else CLOSED
    return f"ticket-{stream}@{version}".encode(), event_type_of(happened).encode(happened)


@each_row("table", [declared, evolved], ids=["declared", "evolved"])
def test_the_first_of_the_last_versions_without_a_gap(spark, table):
    records = [record(version, stream) for stream, (versions, _) in RUNS.items() for version in versions]
    rows = [("t", 0, at, key.decode(), bytearray(value)) for at, (key, value) in enumerate(records)]
    found = Reduction(REGISTRY).reduce(spark.createDataFrame(rows, RAW).repartition(2), table).collect()
    assert {row.ticket_id: (row["_first"], row["_pos"]) for row in found} == {
        stream: (first, max(versions)) for stream, (versions, first) in RUNS.items()
    }


@pytest.fixture
def environment(local):
    return replace(local, log=MemoryLog(REGISTRY))


def append(environment, *versions):
    for version in versions:
        environment.log.append("ticket", *record(version))


def delete(environment, *versions):
    for version in versions:
        environment.log.append("ticket", f"ticket-1@{version}".encode(), None)


@pytest.mark.parametrize("shown", [declared_tickets, evolved_tickets], ids=["declared", "evolved"])
def test_a_version_that_is_missing_behind_such_as_come_again_is_seen(environment, shown):
    group = ProjectionGroup("tickets", [shown])
    append(environment, 0, 1)
    rebuild(environment, group)
    with open_runner(environment, group) as runner:
        append(environment, 1, 0, 2)
        runner.catch_up()
        append(environment, 1, 2, 4)
        with pytest.raises(EventsMissing, match="before version 4 of ticket-1"):
            runner.run_once()


@pytest.mark.parametrize("shown", [declared_tickets, evolved_tickets], ids=["declared", "evolved"])
def test_a_rebuild_of_a_stream_whose_first_events_are_missing_is_refused(environment, shown):
    append(environment, 1, 2)
    with pytest.raises(UndecodableRecord, match="events of ticket-1 are missing from the topic"):
        rebuild(environment, ProjectionGroup("tickets", [shown]))


def test_where_bad_records_are_skipped_what_is_behind_it_is_set_aside_live_as_in_a_rebuild(environment):
    group = ProjectionGroup("tickets", [declared_tickets, evolved_tickets], bad_records="skip")
    append(environment, 0, 1)
    rebuild(environment, group)
    with open_runner(environment, group) as runner:
        append(environment, 0, 1, 3)
        assert [dict(report.set_aside) for report in runner.catch_up()] == [{"behind_a_gap": 1}]
    assert all(verdict.equal for verdict in verify(environment, group).values())


def test_a_stream_is_deleted_by_the_first_of_its_tombstones(environment):
    group = ProjectionGroup("tickets", [declared_tickets, evolved_tickets])
    append(environment, 0, 1, 2)
    rebuild(environment, group)
    with open_runner(environment, group) as runner:
        for versions in ([0], [1], [2]):
            delete(environment, *versions)
            runner.catch_up()
            assert all(verdict.equal and not verdict.rows for verdict in verify(environment, group).values())
