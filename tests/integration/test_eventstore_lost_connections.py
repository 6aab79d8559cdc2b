"""Connections that PostgreSQL cuts in the middle of an append: nothing is lost, and nothing is appended twice."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from sqlalchemy.exc import OperationalError

from eventstore import ANY, NO_STREAM, Aggregate, NewEvent, SqlEventStore, StreamAppend, event
from eventstore.backends.sql import writing
from eventstore.backends.sql.postgres import PostgresDialect
from eventstore.backends.sql.reading import Reader
from eventstore.errors import EventIdTaken, OutcomeUnknown


class Order(Aggregate):
    @event
    class Placed:
        sku: str


PLACED = Order.Placed(sku="tea")
CUT = "select pg_terminate_backend(pg_backend_pid())"


@pytest.fixture
def store(database):
    with SqlEventStore(database()) as store:
        store.create_tables()
        store.register(Order)
        yield store


@pytest.fixture
def cut_before_commit(store):
    """A function that cuts so many appends before they are committed."""

    def prepare(times):
        with store.engine.begin() as connection:
            connection.exec_driver_sql("create sequence cuts")  # counts what is rolled back, too
            connection.exec_driver_sql(
                "create function cut() returns trigger language plpgsql as $$ begin "
                f"if nextval('cuts') <= {times} then perform pg_terminate_backend(pg_backend_pid()); end if; "
                "return new; end $$"
            )
            connection.exec_driver_sql("create trigger cut before insert on events for each row execute function cut()")

    return prepare


@pytest.fixture
def cut_after_commit(monkeypatch):
    """A function that cuts so many appends when they are committed: the answer is on its way."""
    real, left = PostgresDialect.append, []

    def append(self, connection, batch):
        inserted = real(self, connection, batch)
        if left:
            left.pop()
            connection.exec_driver_sql(CUT)
        return inserted

    monkeypatch.setattr(PostgresDialect, "append", append)
    return lambda times: left.extend([None] * times)


@pytest.mark.parametrize("times", [1, 3])
def test_an_append_that_was_cut_before_its_commit_is_repeated(store, cut_before_commit, times):
    cut_before_commit(times)
    result = store.append("order-1", [PLACED, PLACED], expected=NO_STREAM)
    assert [recorded.id for recorded in store.read_stream("order-1")] == list(result.ids)


@pytest.mark.parametrize("expected", [ANY, NO_STREAM])
def test_an_append_whose_answer_was_lost_is_found_by_its_ids(store, cut_after_commit, expected):
    cut_after_commit(1)
    result = store.append("order-1", [PLACED, PLACED], expected=expected)
    assert [recorded.id for recorded in store.read_stream("order-1")] == list(result.ids)
    assert [recorded.position for recorded in store.read_stream("order-1")] == list(result.positions)


def test_a_batch_whose_answer_was_lost_is_found_by_its_ids(store, cut_after_commit):
    cut_after_commit(1)
    results = store.append_batch([StreamAppend(f"order-{n}", [PLACED], ANY) for n in range(3)])
    assert [result.version for result in results] == [0, 0, 0]
    assert [store.head(f"order-{n}") for n in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("expected", [ANY, NO_STREAM])
def test_an_append_that_is_committed_while_it_is_repeated_is_found_too(store, cut_after_commit, monkeypatch, expected):
    """The server goes on with what it was told by a connection that is gone."""
    real, held = PostgresDialect.append, []

    def append(self, connection, batch):
        if not held:
            held.append(store.engine.connect())
            held[0].begin()
            real(self, held[0], batch)  # told, and not committed yet
            connection.exec_driver_sql(CUT)
        threading.Timer(0.3, held[0].commit).start()
        return real(self, connection, batch)

    monkeypatch.setattr(PostgresDialect, "append", append)
    result = store.append("order-1", [PLACED], expected=expected)
    assert [recorded.id for recorded in store.read_stream("order-1")] == list(result.ids)
    held[0].close()


def test_the_planted_fault_is_seen_who_does_not_look_for_the_ids_cannot_tell(store, cut_after_commit, monkeypatch):
    monkeypatch.setattr(writing, "_LOST_SECONDS", 0.5)
    monkeypatch.setattr(Reader, "earlier", lambda *arguments: None)
    cut_after_commit(1)
    with pytest.raises(EventIdTaken):
        store.append("order-1", [PLACED], expected=ANY)
    assert store.head("order-1") == 0  # not twice: the ids are still the same


def test_a_database_that_stays_away_leaves_the_outcome_open_and_a_repetition_settles_it(
    store, cut_after_commit, monkeypatch
):
    """As after a power cut: the append was committed, and nobody can be asked."""
    monkeypatch.setattr(writing, "_LOST_SECONDS", 0.5)
    with monkeypatch.context() as away:
        cut_after_commit(1)
        away.setattr(Reader, "earlier", refuse)
        with pytest.raises(OutcomeUnknown, match="it is unknown whether") as unknown:
            store.append("order-1", [PLACED], expected=NO_STREAM)
    (event_id,) = unknown.value.ids
    again = store.append("order-1", [NewEvent(PLACED, id=event_id)], expected=NO_STREAM)
    assert (again.ids, again.version, store.head("order-1")) == ((event_id,), 0, 0)


def refuse(reader, batch):
    with reader._connect() as connection:
        connection.exec_driver_sql(CUT)
    raise AssertionError("the connection was to be cut")


def test_a_lost_connection_ends_the_callers_transaction_and_leaves_nothing(store):
    with pytest.raises(OperationalError, match="terminat"), store.engine.begin() as connection:  # noqa: PT012
        store.append("order-1", [PLACED], expected=NO_STREAM, connection=connection)
        connection.exec_driver_sql(CUT)
    assert store.head("order-1") is None


def test_a_repetition_in_the_callers_transaction_leaves_it_usable(store):
    named = [NewEvent(PLACED, id=uuid4())]
    first = store.append("order-1", named, expected=NO_STREAM)
    with store.engine.begin() as connection:
        assert store.append("order-1", named, expected=ANY, connection=connection) == first
        store.append("order-2", [PLACED], expected=NO_STREAM, connection=connection)
    assert store.head("order-2") == 0
