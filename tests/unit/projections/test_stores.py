"""Sessions as they are opened, and the write-ahead log of views in a file."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from projections.errors import SparkFailed
from projections.spark import session
from projections.stores.sqlite import SqliteTableStore, WriteAheadLog

ENVIRONMENT = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture
def options(monkeypatch, tmp_path):
    monkeypatch.setattr(session.sys, "prefix", str(tmp_path))
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return lambda **given: session._defaults("1g", given)["spark.driver.extraJavaOptions"].split()


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_collector_that_the_environment_names_goes_before(options, monkeypatch, name):
    monkeypatch.setenv(name, "-Xss1m -XX:+UseZGC")
    assert not [option for option in options() if option.endswith("GC")]


def test_so_does_one_of_the_configuration(options):
    found = options(**{"spark.driver.defaultJavaOptions": "-XX:+UseG1GC"})
    assert not [option for option in found if option.endswith("GC")]


def test_an_archive_of_classes_is_mapped_where_there_is_one_and_never_spoken_of_on_stdout(options):
    assert not [option for option in options() if "SharedArchiveFile" in option]
    session.class_archives().mkdir(parents=True)
    archive = session.class_archives() / "spark-classes-9.jsa"
    archive.write_bytes(b"123456789")
    assert {f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable"} <= set(options())


@pytest.mark.parametrize("name", ["spark-classes-10.jsa", "spark-classes-8.jsa", "4711.jsa"])
def test_one_that_was_cut_off_or_is_being_written_is_none(options, name):
    session.class_archives().mkdir(parents=True)
    (session.class_archives() / name).write_bytes(b"123456789")
    assert not [option for option in options() if "SharedArchiveFile" in option]


@pytest.fixture
def started(monkeypatch, tmp_path):
    """A process that has started a Spark, whose environment has no archive."""
    monkeypatch.setattr(session.sys, "prefix", str(tmp_path))
    monkeypatch.delenv("FACTFOLD_CLASS_ARCHIVE", raising=False)
    (tmp_path / "pyspark" / "jars").mkdir(parents=True)
    spark = SimpleNamespace(_gateway=object())
    monkeypatch.setitem(
        session.sys.modules, "pyspark", SimpleNamespace(SparkContext=spark, __file__=f"{tmp_path}/pyspark/__init__.py")
    )
    return spark


NOTES = """
import os, pathlib, time
time.sleep(0.2)
pathlib.Path('noted').write_text(f'{os.getpriority(0, 0)} {os.getsid(0) == os.getpid()}')
"""


def behind(*words):
    """Whether a process was left behind; it ends before this returns."""
    process = session.archive_behind([session.sys.executable, "-c", *words])
    return process is not None and process.wait() == 0


def test_the_first_command_with_spark_leaves_one_process_behind_that_makes_an_archive(started):
    assert behind(NOTES)
    assert (session.class_archives() / "noted").read_text() == "19 True"
    assert not behind(NOTES)  # one has begun
    long_ago = time.time() - 100_000
    os.utime(session.class_archives() / "begun", (long_ago, long_ago))
    assert behind(NOTES)


def test_no_process_is_left_where_there_is_an_archive_no_spark_or_a_setting_says_so(started, monkeypatch, tmp_path):
    monkeypatch.setenv("FACTFOLD_CLASS_ARCHIVE", "off")
    assert not behind(NOTES)
    monkeypatch.delenv("FACTFOLD_CLASS_ARCHIVE")
    session.class_archives().mkdir(parents=True)
    (session.class_archives() / "spark-classes-9.jsa").write_bytes(b"123456789")
    assert not behind(NOTES)
    time.sleep(0.02)  # the clock of a file system has steps
    (tmp_path / "pyspark" / "jars" / "newer.jar").touch()  # HotSpot would ignore the archive
    assert behind(NOTES)
    (session.class_archives() / "begun").unlink()
    started._gateway = None
    assert not behind(NOTES)


def test_a_folder_that_cannot_be_written_is_no_error(started, tmp_path):
    (tmp_path / "share").touch()
    assert not behind(NOTES)


def test_without_java_one_line_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkFailed, match="Spark cannot start: JAVA_HOME is unset"):
        session.open_session()


# ---- the write-ahead log of views in SQLite stays short though somebody always reads


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
    try:
        yield
    finally:
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


def test_the_planted_fault_is_seen_a_log_that_waits_until_nobody_reads(store, tmp_path, monkeypatch):
    monkeypatch.setattr(WriteAheadLog, "keep_short", lambda log, engine: None)
    with readers(store.path, seconds=0.02):
        assert longest(store, tmp_path) > 3 * LONG


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
