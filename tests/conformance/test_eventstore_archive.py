"""What archiving does to the tables, on both databases."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Table, literal_column, select

from eventstore import ANY, SqlEventStore, StreamAppend
from eventstore.backends.sql import writing
from eventstore.errors import InvalidIdentifier, StoreUnavailable, StreamArchived, WrongExpectedVersion
from eventstore.snapshots import AggregateSnapshot
from tests.notes import Note

pytestmark = pytest.mark.postgres_in_faults


@pytest.fixture
def store(opened):
    return opened()


def write(store, *streams):
    store.append_batch([StreamAppend(stream, [Note.Written(text="x")], ANY) for stream in streams])


@pytest.mark.both_databases
def test_archived_streams_are_listed_by_category(store):
    names = [f"note-{number:04}" for number in range(1_500)]
    write(store, *names, "memo-1", "note_book-1")
    for stream in ("memo-1", "note_book-1", "note-0003", "note-0001"):
        store.archive_stream(stream, expected=0)
    assert set(store.archived_streams()) == {"memo-1", "note-0001", "note-0003", "note_book-1"}
    assert list(store.archived_streams("note")) == ["note-0001", "note-0003"]
    with pytest.raises(InvalidIdentifier):
        store.archived_streams("%")


@pytest.mark.both_databases
def test_a_long_list_is_listed_to_its_end(store):
    names = [f"note-{number:04}" for number in range(1_001)]
    write(store, *names)
    for stream in names:
        store.archive_stream(stream, expected=ANY)
    assert list(store.archived_streams("note")) == names


@pytest.mark.both_databases
def test_the_events_of_an_archived_stream_are_not_touched(store):
    """An updated row would stop the outbox connector."""
    write(store, "note-1")
    events = store.tables.events

    def rows() -> list[tuple[object, ...]]:
        with store.engine.connect() as connection:
            version = (
                "rowid" if store._database.dialect.single_writer else "xmin::text"
            )  # changes when PostgreSQL updates
            return [tuple(row) for row in connection.execute(select(events, literal_column(version)))]

    before = rows()
    store.archive_stream("note-1", expected=0)
    store.unarchive_stream("note-1")
    assert rows() == before


def test_the_aggregate_snapshot_of_an_archived_stream_is_dropped(store):
    write(store, "note-1")
    store.save_snapshot(AggregateSnapshot("note-1", 0, b"\0\0\0\0\1state"))
    store.archive_stream("note-1", expected=0)
    assert store.snapshot("note-1") is None


def test_an_append_in_the_callers_transaction_is_refused_too(store):
    write(store, "note-1")
    store.archive_stream("note-1", expected=0)
    with store.engine.begin() as connection, pytest.raises(StreamArchived):
        store.append("note-1", [Note.Written(text="x")], expected=ANY, connection=connection)
    assert store.head("note-1") == 0


@pytest.fixture
def on_postgres(database):
    """A store where an append may be under way beside another one."""
    with SqlEventStore(database()) as store:
        store.create_tables()
        write(store, "note-1", "note-2")
        yield store


@contextmanager
def appending(store, stream):
    """A transaction that has appended to a stream, and is committed or rolled back at the end."""
    with store.engine.begin() as connection:
        store.append(stream, [Note.Written(text="late")], expected=0, connection=connection)
        yield connection


def archiving(pool, store, *, expected=0):
    """An attempt to archive note-1 that has set its mark."""
    done = pool.submit(store.archive_stream, "note-1", expected=expected)
    while not (done.done() or store.is_archived("note-1")):
        pass
    return done


def test_a_stream_is_not_archived_where_an_append_comes_that_did_not_see_the_mark(on_postgres):
    with ThreadPoolExecutor(1) as pool:
        with appending(on_postgres, "note-1"):
            done = archiving(pool, on_postgres)
            assert not done.done()
        with pytest.raises(WrongExpectedVersion) as refused:
            done.result(30)
    assert refused.value.actual == 1
    assert not on_postgres.is_archived("note-1")


@pytest.mark.parametrize("stream", ["note-1", "note-2"])
def test_a_stream_is_archived_when_an_append_beside_it_left_it_as_it_was(on_postgres, stream):
    with ThreadPoolExecutor(1) as pool:
        with appending(on_postgres, stream) as connection:
            done = archiving(pool, on_postgres)
            connection.rollback()
        done.result(30)
    assert on_postgres.is_archived("note-1")


def test_whoever_archives_whatever_the_version_waits_for_nobody(on_postgres):
    with appending(on_postgres, "note-1"):
        on_postgres.archive_stream("note-1", expected=ANY)
    assert (on_postgres.is_archived("note-1"), on_postgres.head("note-1")) == (True, 1)


def test_an_append_that_stays_open_is_not_waited_for_for_ever(on_postgres, monkeypatch):
    monkeypatch.setattr(writing, "_PATIENCE_SECONDS", 0.1)
    with appending(on_postgres, "note-2"), pytest.raises(StoreUnavailable, match="may still append"):
        on_postgres.archive_stream("note-1", expected=0)
    assert not on_postgres.is_archived("note-1")


def test_a_mark_that_was_there_before_stays_whoever_cannot_confirm_it(on_postgres, monkeypatch):
    on_postgres.archive_stream("note-1", expected=0)
    monkeypatch.setattr(writing, "_PATIENCE_SECONDS", 0.1)
    with appending(on_postgres, "note-2"), pytest.raises(StoreUnavailable):
        on_postgres.archive_stream("note-1", expected=0)
    assert on_postgres.is_archived("note-1")


def test_a_deletion_that_comes_between_leaves_no_mark(on_postgres, monkeypatch):
    """It waits for the mark to be committed, and takes it along."""
    looked = writing.head_of
    with ThreadPoolExecutor(1) as pool:
        deleting: list[Future[int]] = []

        def late(connection: Connection, events: Table, stream: str) -> int:
            head = looked(connection, events, stream)
            if not deleting:
                deleting.append(pool.submit(on_postgres.delete_stream, "note-1", expected=0))
                wait(deleting, timeout=0.5)  # it is done by then, unless it has to wait
            return head

        monkeypatch.setattr(writing, "head_of", late)
        on_postgres.archive_stream("note-1", expected=ANY)
        assert deleting[0].result(30) == 1
    assert not on_postgres.is_archived("note-1")
