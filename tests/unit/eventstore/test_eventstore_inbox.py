"""The inbox on SQLite: what is new, what is known, what is forgotten."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

import eventstore.inbox
from eventstore.backends.sql.transactions import is_outage
from eventstore.errors import StoreNotPrepared, StoreUnavailable, UnsupportedBackend
from eventstore.inbox import Inbox, inbox_table


@pytest.fixture
def engine(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/service.db")
    yield engine
    engine.dispose()


@pytest.fixture
def inbox(engine):
    inbox = Inbox(engine, "fraud", topic="payments")
    inbox.create_tables()
    return inbox


def _rows(engine):
    with engine.connect() as connection:
        return connection.execute(sa.text("select event_id, outcome from factfold_inbox order by time")).all()


def test_only_ids_that_are_new_are_claimed(inbox):
    ids = [uuid.uuid4().hex for _ in range(1500)]
    with inbox.begin() as tx:
        assert inbox.claim(tx, ids[:1000]) in (None, set(ids[:1000]))
    with inbox.begin() as tx:
        assert inbox.claim(tx, ids) == set(ids[1000:])
    with inbox.begin() as tx:
        assert inbox.claim(tx, ids) == set()


def test_a_claim_is_gone_with_its_transaction(inbox, engine):
    with inbox.begin() as tx:
        inbox.claim(tx, [uuid.uuid4().hex])
        tx.rollback()
    assert _rows(engine) == []


def test_a_dead_event_may_be_claimed_again_and_is_handled_then(inbox, engine):
    one = uuid.uuid4().hex
    with inbox.begin() as tx:
        inbox.give_up(tx, one)
        inbox.give_up(tx, one)
    assert _rows(engine) == [(one, "dead")]
    with inbox.begin() as tx:
        assert inbox.claim(tx, [one]) in (None, {one})
    assert _rows(engine) == [(one, "handled")]


def test_old_rows_of_the_group_are_forgotten_and_no_others(inbox, engine):
    other = Inbox(engine, "shipping", topic="payments")
    mine, foreign = uuid.uuid4().hex, uuid.uuid4().hex
    for box, event_id in ((inbox, mine), (other, foreign)):
        with box.begin() as tx:
            box.claim(tx, [event_id])
    assert inbox.forget(timedelta(days=1)) == 0
    assert inbox.forget() == 1
    assert [row.event_id for row in _rows(engine)] == [foreign]


@pytest.mark.parametrize("days", [-60, 60])
@pytest.mark.parametrize("write", ["claim", "give up"])
def test_a_subscriber_s_wrong_clock_neither_ages_rows_nor_forgets_them(inbox, engine, monkeypatch, days, write):
    one = uuid.uuid4().hex
    with monkeypatch.context() as patched:
        if hasattr(eventstore.inbox, "datetime"):
            patched.setattr("eventstore.inbox.datetime", _clock(days))
        with inbox.begin() as tx:
            inbox.claim(tx, [one]) if write == "claim" else inbox.give_up(tx, one)
    assert inbox.forget(timedelta(days=30)) == 0
    with engine.connect() as connection:
        (time,) = connection.execute(sa.select(inbox_table(sa.MetaData()).c.time)).scalars()
    assert abs(time.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(minutes=5)


def _clock(days):
    class Wrong(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=days)

    return Wrong


def test_rows_are_forgotten_once_they_are_old_by_the_database_s_clock(inbox, engine):
    with inbox.begin() as tx:
        inbox.claim(tx, [uuid.uuid4().hex])
        tx.execute(sa.update(inbox_table(sa.MetaData())).values(time=datetime.now(UTC) - timedelta(days=31)))
    assert inbox.forget(timedelta(days=32)) == 0
    assert inbox.forget(timedelta(days=30)) == 1


def test_a_table_of_an_older_version_is_refused(engine):
    with engine.begin() as tx:
        tx.exec_driver_sql("create table factfold_inbox (subscriber text, event_id text, time text, outcome text)")
    with pytest.raises(StoreNotPrepared, match="no column topic"):
        Inbox(engine, "fraud", topic="payments").create_tables()


@pytest.mark.parametrize("code", ["08006", "53300", "57P01", "25006", "40001", "40P01", "55P03"])
def test_a_database_that_is_away_or_says_not_now_is_no_records_fault(code):
    assert is_outage(_error(code))


@pytest.mark.parametrize("code", ["23505", "25P02", "42P01", "57014"])
def test_what_a_record_did_is_no_outage(code):
    assert not is_outage(_error(code))


def _error(code):
    """The error of this code, as SQLAlchemy wraps it."""
    import psycopg

    orig = psycopg.errors.lookup(code)("no")
    return sa.exc.DBAPIError.instance("select 1", {}, orig, psycopg.Error, dialect=postgresql.psycopg.dialect())


def test_a_database_that_is_not_there_is_unavailable(tmp_path):
    engine = sa.create_engine("postgresql+psycopg://nobody:secret-word@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable, match="does not answer") as refused:
        Inbox(engine, "g", topic="payments").create_tables()
    assert "secret-word" not in str(refused.value)


def test_a_driver_the_inbox_does_not_speak_is_refused():
    with pytest.raises(UnsupportedBackend, match="mysql"):
        Inbox(_Foreign(), "g", topic="payments")


class _Foreign:
    """As much of an engine as is looked at."""

    driver = "pymysql"
    dialect = sa.engine.default.DefaultDialect()
    dialect.name = "mysql"
    url = sa.make_url("mysql+pymysql://u:p@host/db")


def test_many_open_a_new_file_at_once(tmp_path):
    for number in range(5):
        engine = sa.create_engine(f"sqlite:///{tmp_path / f'{number}.db'}", poolclass=sa.pool.NullPool)
        start = threading.Barrier(8)

        def opened(_, engine=engine, start=start):
            start.wait()
            Inbox(engine, "fraud", topic="payments").create_tables()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(opened, range(8)))
