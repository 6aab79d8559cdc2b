"""Without Kafka: a record that cannot be read is skipped and noted; dead letters, which have no topic, are refused."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from decimal import Decimal

import pytest
import sqlalchemy as sa

from eventstore import ANY, SqlEventStore
from projections import Environment, ProjectionGroup, Table, open_runner, rebuild, verify, view
from projections.errors import InvalidDefinition, TooManyBadRecords, UndecodableRecord
from projections.spark.reading.store_source import StoreLog
from projections.spark.session import small_batch_session
from projections.stores.sqlite import SqliteTableStore
from tests.integration.tickets import DECLARED, Ticket

tickets = Table.from_events(Ticket, key="ticket_id", columns=DECLARED)


@view(key="ticket_id")
def ticket_states(tickets):
    return tickets.select("ticket_id", "status")


STRICT = ProjectionGroup("desk", [ticket_states])
SKIPPING = dataclasses.replace(STRICT, bad_records="skip")


@pytest.fixture
def road(spark, tmp_path):
    path = tmp_path / "desk.db"
    with SqlEventStore(f"sqlite:///{path}") as store, closing(SqliteTableStore(path)) as tables:
        store.create_tables()
        store.register(Ticket)
        tables.prepare()
        yield store, Environment(spark, small_batch_session(spark), tables, StoreLog(tables.path))


def append(store, *names):
    for name in names:
        events = [Ticket.Opened(customer_id=1, hours=Decimal(1)), Ticket.Closed()]
        store.append(f"ticket-{name}", events, expected=ANY)


def spoil(store, stream):
    """Cut the payload of a stream's first event, as a broken disk would."""
    with store.engine.begin() as connection:
        cut = "UPDATE events SET payload = substr(payload, 1, 7) WHERE stream = :stream AND version = 0"
        assert connection.execute(sa.text(cut), {"stream": stream}).rowcount == 1


def states(env):
    with env.store.transaction() as connection:
        return dict(connection.execute(sa.text("SELECT ticket_id, status FROM ticket_states")).all())


def set_aside(env, generation):
    with env.store.transaction() as connection:
        found = connection.execute(sa.text(f'SELECT kind FROM "factfold_desk_{generation}$set_aside"'))
        return sorted(found.scalars())


def test_a_bad_record_is_skipped_with_what_stands_behind_it_by_live_batches_and_by_a_rebuild(road):
    store, env = road
    append(store, "a")
    rebuild(env, SKIPPING)
    append(store, "b", "c")
    spoil(store, "ticket-b")
    with open_runner(env, STRICT) as runner, pytest.raises(UndecodableRecord):
        runner.run_once()
    with open_runner(env, SKIPPING) as runner:
        (report,) = runner.catch_up()
    assert report.set_aside == {"bad_avro": 1, "behind_a_gap": 1}
    assert states(env) == {"a": "closed", "c": "closed"}
    assert set_aside(env, 1) == ["bad_avro", "behind_a_gap"]
    assert verify(env, SKIPPING)["ticket_states"].equal
    with pytest.raises(UndecodableRecord):
        rebuild(env, STRICT)
    built = rebuild(env, SKIPPING).generation
    assert states(env) == {"a": "closed", "c": "closed"}
    assert set_aside(env, built) == ["bad_avro", "behind_a_gap"]


def test_more_bad_records_than_a_list_of_exceptions_holds_are_told(road, monkeypatch):
    store, env = road
    append(store, "a", "b")
    spoil(store, "ticket-b")
    monkeypatch.setattr("projections.logs.set_aside.MOST_BAD", 1)
    rebuild(env, SKIPPING, cut_over=False)
    monkeypatch.setattr("projections.logs.set_aside.MOST_BAD", 0)
    with pytest.raises(TooManyBadRecords, match="more than 0 records"):
        rebuild(env, dataclasses.replace(SKIPPING, version=2))


def test_dead_letters_are_refused_where_there_is_no_topic_for_them(road):
    _, env = road
    sending = dataclasses.replace(STRICT, bad_records="dead-letter")
    with pytest.raises(InvalidDefinition, match="a store of its own file has none") as caught:
        with env.log.dead_letters(sending.topics, group=sending.name):
            pass
    assert "bad_records='skip'" in caught.value.remedy
