"""What is left of a deleted stream in the tables, and what goes along in an export, on both databases."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from sqlalchemy import select

from eventstore import ANY, Position
from eventstore.backends.sql import writing
from eventstore.errors import ImportConflict, StreamDeleted
from eventstore.snapshots import AggregateSnapshot
from tests.notes import written

pytestmark = pytest.mark.postgres_in_faults


@pytest.fixture
def store(opened):
    return opened()


def rows(store):
    events = store.tables.events
    with store.engine.connect() as connection:
        query = select(events).order_by(events.c.order_xid, events.c.position)
        return [dict(row) for row in connection.execute(query).mappings()]


@pytest.mark.both_databases
def test_rows_without_a_payload_take_the_places_of_the_events_and_of_the_next_one(store):
    store.append("note-1", written("a", "b"), expected=ANY)
    before = rows(store)
    store.append("note-2", written("c"), expected=ANY)
    store.delete_stream("note-1", expected=1)
    other, *left = rows(store)
    assert other["stream"] == "note-2"
    assert [(row["message_key"], row["payload"], row["type"]) for row in left] == [
        (f"note-1@{version}", None, "factfold.deleted") for version in range(3)
    ]
    places = {(row["partition"], row["topic"], row["category"]) for row in (*before, *left)}
    assert len(places) == 1
    assert {row["id"] for row in left}.isdisjoint(row["id"] for row in before)
    assert {row["ce_source"] for row in left} == {"/shop"}


def test_the_aggregate_snapshot_of_a_deleted_stream_is_gone(store):
    store.append("note-1", written("a"), expected=ANY)
    store.save_snapshot(AggregateSnapshot("note-1", 0, b"\0\0\0\0\1state"))
    store.delete_stream("note-1", expected=ANY)
    assert store.snapshot("note-1") is None


@pytest.mark.both_databases
def test_a_long_stream_is_deleted_whole(store):
    store.append("note-1", written(*map(str, range(5_001))), expected=ANY)
    assert store.delete_stream("note-1", expected=5_000) == 5_001
    assert [row["version"] for row in rows(store)] == list(range(5_002))


@pytest.mark.both_databases
def test_readers_and_their_lag_pass_over_what_is_left(store):
    store.append("note-1", written("a"), expected=ANY)
    (kept,) = store.append("note-2", written("b"), expected=ANY).positions
    store.delete_stream("note-1", expected=ANY)
    assert store.last_position("note") == kept
    assert store.backlog(kept, category="note") == (0, None)
    assert store.backlog(Position(0, 0), category="note")[0] == 1


@pytest.mark.both_databases
def test_of_a_writer_that_comes_between_the_deletion_knows(store, monkeypatch):
    """The writer appends after the deletion has looked, and before it marks the stream."""
    store.append("note-1", written("a"), expected=ANY)
    looked, tried = writing.ClosedStreams._last, Event()

    def late(self: Any, connection: Any, stream: str) -> Any:
        last = looked(self, connection, stream)
        if not tried.is_set() and not store._database.dialect.single_writer:
            tried.set()
            with ThreadPoolExecutor(1) as pool:
                pool.submit(store.append, "note-1", written("b"), expected=0).result(30)
        return last

    monkeypatch.setattr(writing.ClosedStreams, "_last", late)
    expected = 1 if store._database.dialect.single_writer else 2
    assert store.delete_stream("note-1", expected=ANY) == expected
    assert {row["payload"] for row in rows(store)} == {None}


@pytest.mark.parametrize("name", ["all.jsonl", "all.parquet"])
def test_an_export_says_which_streams_were_deleted(opened, tmp_path, name):
    source, target = opened(), opened()
    source.append("note-1", written("a", "b"), expected=ANY)
    source.append("note-2", written("c"), expected=ANY)
    source.delete_stream("note-1", expected=ANY)
    for imported in (2, 0):
        source.export_file(tmp_path / name)
        assert target.import_file(tmp_path / name).imported == imported
    assert [e.stream for e in target.read_all()] == ["note-2"]
    with pytest.raises(StreamDeleted):
        target.append("note-1", written("again"), expected=ANY)


def test_an_older_export_does_not_bring_a_deleted_stream_back(opened, tmp_path):
    source, target = opened(), opened()
    source.append("note-1", written("a", "b"), expected=ANY)
    source.export_file(tmp_path / "before.jsonl")
    source.delete_stream("note-1", expected=ANY)
    source.export_file(tmp_path / "after.jsonl")
    target.import_file(tmp_path / "after.jsonl")
    for store in (source, target):
        with pytest.raises(ImportConflict, match="'note-1' was deleted here"):
            store.import_file(tmp_path / "before.jsonl")
    living = opened()
    living.import_file(tmp_path / "before.jsonl")
    with pytest.raises(ImportConflict, match="was deleted there, and has events here"):
        living.import_file(tmp_path / "after.jsonl")
    living.delete_stream("note-1", expected=ANY)


def test_a_deletion_shows_in_a_file_as_a_line_without_a_payload(opened, tmp_path):
    source = opened()
    source.append("note-1", written("a"), expected=ANY)
    source.delete_stream("note-1", expected=ANY)
    source.export_file(tmp_path / "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()]
    (line,) = (line for line in lines if line["kind"] == "event")
    assert (line["stream"], line["version"], line["type"], "payload" in line) == (
        "note-1",
        1,
        "factfold.deleted",
        False,
    )
