"""Loads by executors into PostgreSQL: tasks run twice, at once or too late, and each row is there once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pyarrow as pa
import pytest
import sqlalchemy as sa

from projections import ProjectionGroup, Table, view
from projections.declaring.columns import ColumnType
from projections.errors import ProjectionError, TableStoreUnavailable
from projections.stores import copying, dialects
from projections.stores.arrow import Part
from projections.stores.loads import LOADS, PARTS, close_loads_of
from projections.stores.postgres import PostgresTableStore
from tests.errors import raises

ROWS = pa.table({"id": pa.array(range(1_000), pa.int64())})
TABLE = sa.Table("loaded", sa.MetaData(schema="public"), sa.Column("id", sa.BigInteger))


notes = Table.from_changelog(
    sa.Table("notes", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True)), topic="loads.public.notes"
)


@view(key="id")
def note_list(notes):
    return notes


NOTES = ProjectionGroup("loads", [note_list])


@pytest.fixture
def store(database):
    store = PostgresTableStore(database())
    store.prepare()
    with store.transaction() as connection:
        TABLE.create(connection)
    yield store
    store.close()


def slowly(begun, go):
    """The rows, the last of them only once they may come."""

    def batches():
        yield from ROWS.slice(0, 500).to_batches()
        begun.set()
        assert go.wait(30)
        yield from ROWS.slice(500).to_batches()

    return pa.RecordBatchReader.from_batches(ROWS.schema, batches())


def found(store):
    with store.looking() as connection:
        return connection.scalars(sa.select(TABLE.c.id).order_by("id")).all()


def test_a_task_that_is_run_again_writes_nothing_more(store):
    target = store.target(TABLE)
    with target.load() as load:
        assert target.append(ROWS, part=Part(load, 0)) == 1_000
        assert target.append(ROWS.slice(0, 10), part=Part(load, 1)) == 10
        assert target.append(ROWS, part=Part(load, 0)) == 1_000
    assert found(store) == sorted([*range(1_000), *range(10)])


def test_of_two_attempts_at_once_one_counts(store):
    target, begun, go = store.target(TABLE), Event(), Event()
    with ThreadPoolExecutor() as pool, target.load() as load:
        slow = pool.submit(target.append, slowly(begun, go), part=Part(load, 0))
        assert begun.wait(30)
        assert target.append(ROWS, part=Part(load, 0)) == 1_000
        go.set()
        assert slow.result(30) == 1_000
    assert found(store) == list(range(1_000))


def test_a_task_that_outlives_its_load_takes_its_rows_back(store):
    target, begun, go = store.target(TABLE), Event(), Event()
    with ThreadPoolExecutor() as pool:
        with target.load() as load:
            late = pool.submit(target.append, slowly(begun, go), part=Part(load, 0))
            assert begun.wait(30)
        go.set()
        with raises(ProjectionError, code="load-closed", match="comes after its end"):
            late.result(30)
    assert found(store) == []
    with store.looking() as connection:
        assert [connection.scalar(sa.select(sa.func.count()).select_from(kept)) for kept in (LOADS, PARTS)] == [0, 0]


@pytest.fixture
def run(store):
    run, _ = store.begin_generation(NOTES, {"note_list": {"id": ColumnType("long")}})
    return run


@contextmanager
def opened_at_the_end(go):
    """What waits for it need not wait any longer once the test knows that it has failed."""
    try:
        yield
    finally:
        go.set()


def test_whoever_claims_a_run_waits_for_the_rows_of_its_holder_who_writes_no_others(store, run):
    """A runner is in the middle of its rows when another one claims the run, and comes with others then."""
    target, begun, go = store.target(TABLE, run), Event(), Event()
    with ThreadPoolExecutor() as pool, opened_at_the_end(go):
        slow = pool.submit(target.append, slowly(begun, go))
        assert begun.wait(30)
        claim = pool.submit(store.claim, run)
        time.sleep(0.3)
        assert not claim.done()  # or what it empties then would be filled behind it
        go.set()
        assert slow.result(30) == 1_000
        theirs = claim.result(30)
    with raises(ProjectionError, code="run-superseded"):
        target.append(ROWS)
    assert len(found(store)) == 1_000
    assert store.target(TABLE, theirs).append(ROWS) == 1_000


def test_rows_wait_for_a_table_that_others_hold_but_not_for_good(store, monkeypatch):
    monkeypatch.setattr(copying, "_LOCK_SECONDS", 1)
    target = store.target(TABLE)
    with store.transaction() as connection:
        connection.execute(sa.text("LOCK TABLE public.loaded IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(TableStoreUnavailable, match="lock timeout"):
            target.append(ROWS)
    assert target.append(ROWS) == 1_000


def test_a_load_into_a_schema_that_was_dropped_is_closed(store):
    with store.target(TABLE).load(), store.transaction() as connection:
        close_loads_of(connection, "publi")
        assert connection.scalar(sa.select(sa.func.count()).select_from(LOADS)) == 1
        close_loads_of(connection, "public")
        assert connection.scalar(sa.select(sa.func.count()).select_from(LOADS)) == 0


def test_a_task_of_a_killed_driver_writes_nothing_into_what_was_emptied_since(store):
    target = store.target(TABLE)
    with target.load() as load:  # whoever opened it is gone: nobody will close it
        target.append(ROWS, part=Part(load, 0))
        with store.transaction() as connection:
            dialects.empty(connection, [TABLE])
        with raises(ProjectionError, code="load-closed", match="comes after its end"):
            target.append(ROWS, part=Part(load, 1))
    assert found(store) == []
