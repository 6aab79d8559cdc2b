"""The write-ahead log of views in SQLite stays short though somebody always reads."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from projections.stores.sqlite import SqliteTableStore, WriteAheadLog

LONG = 200_000  # bytes
COMMITS = 60  # of 20 KB


@pytest.fixture
def store(tmp_path):
    store = SqliteTableStore(tmp_path / "views.db")
    store.prepare()
    with store.transaction() as connection:
        connection.execute(sa.text("CREATE TABLE shown (text TEXT)"))
    store._log = WriteAheadLog(store.path, long=LONG)
    yield store
    store.close()


@contextmanager
def readers(path, *, seconds):
    """Three of them, at least one of which is in a transaction at any time, each for so many seconds."""
    stop, begun = threading.Event(), threading.Barrier(4)

    def read(late):
        connection = sqlite3.connect(path, isolation_level=None)
        begun.wait()
        time.sleep(late)
        while not stop.is_set():
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM shown").fetchone()
            stop.wait(seconds)
            connection.execute("COMMIT")
        connection.close()

    threads = [threading.Thread(target=read, args=(seconds * n / 3,)) for n in range(3)]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(seconds)
    yield
    stop.set()
    for thread in threads:
        thread.join()


def longest(store, tmp_path):
    """Commit again and again; return how long the log was at most."""
    sizes = []
    for number in range(COMMITS):
        with store.transaction() as connection:
            connection.execute(sa.text("INSERT INTO shown VALUES (:text)"), {"text": f"{number:20000}"})
        sizes.append((tmp_path / "views.db-wal").stat().st_size)
    with store.transaction() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM shown")) == COMMITS
    return max(sizes)


def test_the_log_is_written_back_though_somebody_always_reads(store, tmp_path):
    with readers(store.path, seconds=0.02):
        assert longest(store, tmp_path) < 3 * LONG  # one look at a busy machine finds readers, and it doubles once


def test_a_reader_that_stays_costs_a_writer_a_second_each_time_the_log_has_doubled(store, tmp_path):
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM shown").fetchone() == (0,)
    began = time.monotonic()
    assert longest(store, tmp_path) > 4 * LONG
    assert 3 <= time.monotonic() - began < 10
    assert reader.execute("SELECT count(*) FROM shown").fetchone() == (0,)
    reader.close()
    with store.transaction() as connection:
        connection.execute(sa.text("INSERT INTO shown VALUES (:text)"), {"text": "x" * 20 * LONG})
    assert (tmp_path / "views.db-wal").stat().st_size == 0


def test_an_engine_waits_for_locks_as_long_as_before(store, tmp_path):
    with store.looking() as connection:
        before = connection.scalar(sa.text("PRAGMA busy_timeout"))
    longest(store, tmp_path)
    with store.looking() as connection:
        assert connection.scalar(sa.text("PRAGMA busy_timeout")) == before > 1_000
