"""What archiving does to the tables, on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import literal_column, select

from eventstore import ANY, Aggregate, Dispatcher, SqlEventStore, StreamAppend, command, event
from eventstore.errors import InvalidIdentifier, StreamArchived
from eventstore.snapshots import AggregateSnapshot


class Note(Aggregate):
    @event
    class Written:
        text: str

    @command
    def write(self, text: str) -> None:
        self.emit(self.Written(text=text))


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlEventStore]:
    url = f"sqlite:///{tmp_path / 'events.db'}"
    if request.param == "postgres":
        create: Callable[[], str] = request.getfixturevalue("database")
        url = create()
    with SqlEventStore(url) as store:
        store.create_tables()
        yield store


def write(store: SqlEventStore, *streams: str) -> None:
    store.append_batch([StreamAppend(stream, [Note.Written(text="x")], ANY) for stream in streams])


def test_archived_streams_are_listed_by_category(store: SqlEventStore) -> None:
    names = [f"note-{number:04}" for number in range(1_500)]
    write(store, *names, "memo-1", "note_book-1")
    for stream in ("memo-1", "note_book-1", "note-0003", "note-0001"):
        store.archive_stream(stream, expected=0)
    assert set(store.archived_streams()) == {"memo-1", "note-0001", "note-0003", "note_book-1"}
    assert list(store.archived_streams("note")) == ["note-0001", "note-0003"]
    with pytest.raises(InvalidIdentifier):
        store.archived_streams("%")


def test_a_long_list_is_listed_to_its_end(store: SqlEventStore) -> None:
    names = [f"note-{number:04}" for number in range(1_001)]
    write(store, *names)
    for stream in names:
        store.archive_stream(stream, expected=ANY)
    assert list(store.archived_streams("note")) == names


def test_the_events_of_an_archived_stream_are_not_touched(store: SqlEventStore) -> None:
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


def test_the_aggregate_snapshot_of_an_archived_stream_is_dropped(store: SqlEventStore) -> None:
    write(store, "note-1")
    store.keep_snapshot(AggregateSnapshot("note-1", 0, b"\0\0\0\0\1state"))
    store.archive_stream("note-1", expected=0)
    assert store.snapshot("note-1") is None


def test_a_command_to_an_archived_stream_is_told_so(store: SqlEventStore) -> None:
    dispatcher = Dispatcher(store)
    dispatcher.send("1", Note.write, "a")
    store.archive_stream("note-1", expected=0)
    with pytest.raises(StreamArchived):
        dispatcher.send("1", Note.write, "b")


def test_an_append_in_the_callers_transaction_is_refused_too(store: SqlEventStore) -> None:
    write(store, "note-1")
    store.archive_stream("note-1", expected=0)
    with store.engine.begin() as connection, pytest.raises(StreamArchived):
        store.append("note-1", [Note.Written(text="x")], expected=ANY, connection=connection)
    assert store.head("note-1") == 0
