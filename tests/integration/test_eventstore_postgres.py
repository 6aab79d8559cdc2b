"""What only PostgreSQL does: races inside the caller's transaction, servers that are gone, plain columns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from eventstore import ANY, NO_STREAM, NewEvent, SqlEventStore, StreamAppend
from eventstore.backends.sql import writing
from eventstore.backends.sql.postgres import PostgresDialect
from eventstore.errors import OutcomeUnknown, StoreUnavailable, WrongExpectedVersion
from eventstore.topics import partition_of
from tests.orders import PLACED, Order

RECORD_QUERY = """
select message_key, topic, partition, ce_time,
    to_char(time at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
from events
"""
GENERATED_QUERY = """
select count(*) from information_schema.columns where is_generated <> 'NEVER' and table_name = 'events'
"""


@pytest.fixture
def store(url: str) -> Iterator[SqlEventStore]:
    with SqlEventStore(url) as store:
        store.create_tables()
        store.register(Order)
        yield store


def test_key_topic_and_partition_are_ordinary_columns_debezium_can_read(store):
    store.append("order-7", [PLACED, PLACED], expected=NO_STREAM)
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql(RECORD_QUERY).all()
        generated = connection.exec_driver_sql(GENERATED_QUERY).scalar()
    partition = partition_of("order-7", 4)
    assert [tuple(row[:3]) for row in rows] == [
        ("order-7@0", "order", partition),
        ("order-7@1", "order", partition),
    ]
    assert all(row[3] == row[4] for row in rows)
    assert generated == 0


def test_a_race_lost_inside_the_callers_transaction_gives_the_actual_version(store):
    store.append("order-1", [PLACED], expected=NO_STREAM)
    with store.engine.connect() as late:
        late.execution_options(isolation_level="REPEATABLE READ")
        with late.begin() as transaction:
            late.exec_driver_sql("select count(*) from events")
            store.append("order-1", [PLACED], expected=0)
            with pytest.raises(WrongExpectedVersion) as lost:
                store.append("order-1", [PLACED], expected=0, connection=late)
            transaction.rollback()
    assert (lost.value.actual, lost.value.expected) == (1, 0)


def test_a_writer_that_waited_for_the_winner_gets_the_actual_version(store):
    with ThreadPoolExecutor(1) as pool:
        with store.engine.begin() as winner:
            store.append("order-1", [PLACED] * 3, expected=NO_STREAM, connection=winner)
            loser = pool.submit(store.append, "order-1", [PLACED], expected=NO_STREAM)
            _wait_for_a_blocked_backend(store)
        with pytest.raises(WrongExpectedVersion) as lost:
            loser.result(30)
    assert lost.value.actual == 2


def _wait_for_a_blocked_backend(store: SqlEventStore) -> None:
    query = "select count(*) from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0"
    with store.engine.connect() as connection:
        for _ in range(3000):
            if connection.exec_driver_sql(query).scalar():
                return
            connection.exec_driver_sql("select pg_stat_clear_snapshot(), pg_sleep(0.01)")
    pytest.fail("nobody was blocked")


def test_a_wrong_password_is_unavailable_and_never_shown(url):
    wrong = make_url(url).set(password="sentinel-password")
    with SqlEventStore(wrong) as store, pytest.raises(StoreUnavailable) as refused:
        store.create_tables()
    assert "password authentication failed" in refused.value.message
    assert "sentinel" not in str(refused.value)


def test_a_server_that_is_gone_is_unavailable(url):
    nowhere = make_url(url).set(host="127.0.0.1", port=1)
    with SqlEventStore(nowhere) as store, pytest.raises(StoreUnavailable, match="does not answer"):
        store.append("order-1", [PLACED], expected=ANY)


def test_a_connection_that_was_lost_while_nobody_used_it_is_replaced(store):
    store.append("order-1", [PLACED], expected=NO_STREAM)
    with psycopg.connect(store.engine.url.set(drivername="postgresql").render_as_string(False)) as killer:
        killer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )
    assert store.append("order-1", [PLACED], expected=0).version == 1
    assert store.head("order-1") == 1


def test_the_callers_commit_counts_although_nothing_else_was_executed(store):
    with store.engine.connect() as connection:
        store.append("order-1", [PLACED], expected=NO_STREAM, connection=connection)
        connection.commit()
    assert store.head("order-1") == 0


def test_a_batch_of_thousands_is_one_statement(store):
    appends = [StreamAppend(f"order-{n}", [PLACED] * 3, NO_STREAM) for n in range(1500)]
    results = store.append_batch(appends)
    with store.engine.connect() as connection:  # the transaction and the command in it that wrote a row
        assert len(connection.exec_driver_sql("select distinct xmin::text, cmin::text from events").all()) == 1
    positions = [position.position for result in results for position in result.positions]
    assert positions == sorted(positions)
    assert [recorded.id for recorded in store.read_all()] == [i for result in results for i in result.ids]


def test_batches_that_cross_each_other_wait_and_do_not_deadlock(store):
    """A deadlock is seen by PostgreSQL after a second, and broken one at a time: 16 such batches took half a minute."""
    streams = [f"order-{number}" for number in range(300)]

    def place(number: int) -> None:
        order = streams if number % 2 else streams[::-1]
        store.append_batch([StreamAppend(stream, [PLACED], ANY) for stream in order])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(place, range(16)))
    assert {store.head(stream) for stream in streams} == {15}
    with store.engine.connect() as connection:
        query = "select deadlocks from pg_stat_database where datname = current_database()"
        assert connection.exec_driver_sql(query).scalar_one() == 0


# ---- Readers of PostgreSQL stay behind transactions still open; a naive reader shows what that prevents


CUT = "select pg_terminate_backend(pg_backend_pid())"


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


def test_a_database_that_stays_away_leaves_the_outcome_open_and_a_repetition_settles_it(
    store, cut_after_commit, monkeypatch
):
    """As after a power cut: the append was committed, and nobody can be asked."""
    monkeypatch.setattr(writing, "_LOST_SECONDS", 0.5)
    with monkeypatch.context() as away:
        cut_after_commit(1)
        away.setattr(writing.Appender, "_earlier", refuse)
        with pytest.raises(OutcomeUnknown, match="it is unknown whether") as unknown:
            store.append("order-1", [PLACED], expected=NO_STREAM)
    (event_id,) = unknown.value.ids
    again = store.append("order-1", [NewEvent(PLACED, id=event_id)], expected=NO_STREAM)
    assert (again.ids, again.version, store.head("order-1")) == ((event_id,), 0, 0)


def refuse(appender, batch):
    with appender._database.statement() as connection:
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
