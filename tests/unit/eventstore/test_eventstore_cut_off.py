"""A statement on aiosqlite that is cancelled, wherever it is, keeps no lock: not even while its exception is kept."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sqlite3

import aiosqlite
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from eventstore.backends.sql.greenlets import release_when_cut_off

STATEMENTS = {
    "a query": "select n from numbers",
    "a change": "insert into numbers values (4)",
    "a change that returns rows": "insert into numbers values (4), (5) returning n",
}


@pytest.fixture
def writer(tmp_path):
    """A connection to a database of three numbers, which waits for nobody."""
    connection = sqlite3.connect(tmp_path / "numbers.db", timeout=0)
    with connection:
        connection.execute("create table numbers (n)")
        connection.execute("insert into numbers values (1), (2), (3)")
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def _quiet():
    """SQLAlchemy's pool tells of every connection that is cut off, with its stack."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


async def cut_off(engine, sql, monkeypatch, *, at):
    """Run a statement in a transaction, cancelled at these of its calls of the driver; return the cancellation."""
    calls, real = 0, aiosqlite.Connection._execute

    async def execute(connection, function, *args, **kwargs):
        nonlocal calls
        calls += 1
        if calls in at:
            asyncio.current_task().cancel()
        return await real(connection, function, *args, **kwargs)

    async def work():
        try:
            async with engine.begin() as tx:
                await tx.exec_driver_sql(sql)
        except asyncio.CancelledError as ended:
            return ended

    with monkeypatch.context() as patched:
        patched.setattr(aiosqlite.Connection, "_execute", execute)
        return await asyncio.create_task(work())


async def lock_left(tmp_path, writer, monkeypatch, *, sql, times, release):
    """Cancel a statement at each call in turn, so many times in a row; return the first after which a lock is kept."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/numbers.db", poolclass=sa.NullPool)
    if release:
        release_when_cut_off(engine.sync_engine)
    async with engine.connect():  # the first connection of an engine makes calls of its own
        pass
    for first in itertools.count(1):
        ended = await cut_off(engine, sql, monkeypatch, at=range(first, first + times))
        if ended is None:
            assert first > 5, "the statement was never cut off"
            break
        await asyncio.sleep(0.02)  # the thread of the connection ends what it has been told
        try:
            with writer:
                writer.execute("insert into numbers values (0)")
        except sqlite3.OperationalError:
            return first
    return None


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("sql", STATEMENTS.values(), ids=STATEMENTS)
async def test_a_statement_that_is_cut_off_keeps_no_lock(tmp_path, writer, monkeypatch, sql, times):
    assert await lock_left(tmp_path, writer, monkeypatch, sql=sql, times=times, release=True) is None


async def test_the_planted_fault_is_seen_a_cursor_left_open_keeps_the_lock(tmp_path, writer, monkeypatch):
    sql = STATEMENTS["a change that returns rows"]
    assert await lock_left(tmp_path, writer, monkeypatch, sql=sql, times=1, release=False)
