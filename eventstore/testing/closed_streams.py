"""What every event store must do with streams that are deleted or archived; a part of the conformance suite."""

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import StreamArchived, StreamDeleted, WrongExpectedVersion
from eventstore.event_types import event
from eventstore.identifiers import ANY, NO_STREAM, STREAM_EXISTS, Position
from eventstore.messages import NewEvent
from eventstore.store import EventStore, StreamAppend

_WRITERS = 16
# Enough to catch a store that looks first and marks later, on SQLite and on PostgreSQL.
_RACES = 60


class Lease(Aggregate):
    """The aggregate this part writes with."""

    @event
    class Signed:
        """Nothing to say."""


def _signed() -> Lease.Signed:
    return Lease.Signed()


def _new() -> str:
    return f"lease-{uuid4()}"


def _last_position(store: EventStore) -> Position | None:
    last = None
    for recorded in store.read_all():
        last = recorded.position
    return last


class DeletionConformance:
    """A part of the suite; `store` must be ready for use."""

    def test_a_deleted_stream_is_empty_and_refuses_appends(self, store: EventStore) -> None:
        start, stream, other, event_id = _last_position(store), _new(), _new(), uuid4()
        first = [NewEvent(_signed(), id=event_id), _signed()]
        store.append_batch([StreamAppend(stream, first, ANY), StreamAppend(other, [_signed()], ANY)])
        assert store.delete_stream(stream, expected=1) == 2
        assert list(store.read_stream(stream)) == list(store.read_stream(stream, backwards=True)) == []
        assert (store.head(stream), store.find(event_id)) == (None, None)
        assert [recorded.stream for recorded in store.read_all(after=start)] == [other]
        for expected in (ANY, NO_STREAM, STREAM_EXISTS, 1):
            with pytest.raises(StreamDeleted, match="was deleted"):
                store.append(stream, [_signed()], expected=expected)
        with pytest.raises(StreamDeleted):
            store.append(stream, first, expected=ANY)
        with pytest.raises(StreamDeleted):
            store.append_batch([StreamAppend(other, [_signed()], ANY), StreamAppend(stream, [_signed()], ANY)])
        assert store.head(other) == 0

    def test_a_stream_is_deleted_as_its_writer_saw_it(self, store: EventStore) -> None:
        stream = _new()
        store.append(stream, [_signed()] * 3, expected=NO_STREAM)
        for expected in (NO_STREAM, 1, 3):
            with pytest.raises(WrongExpectedVersion) as refused:
                store.delete_stream(stream, expected=expected)
            assert refused.value.actual == 2
        assert len(list(store.read_stream(stream))) == 3
        assert [store.delete_stream(stream, expected=STREAM_EXISTS) for _ in range(2)] == [3, 0]

    def test_a_stream_that_never_was_is_not_deleted(self, store: EventStore) -> None:
        stream = _new()
        with pytest.raises(WrongExpectedVersion):
            store.delete_stream(stream, expected=STREAM_EXISTS)
        assert store.delete_stream(stream, expected=ANY) == 0
        assert store.append(stream, [_signed()], expected=NO_STREAM).version == 0

    def test_a_deleted_stream_stays_deleted_under_concurrent_appends(self, store: EventStore) -> None:
        stream, start = _new(), _last_position(store)
        store.append(stream, [_signed()], expected=NO_STREAM)

        def write(number: int) -> int:
            try:
                if number == _WRITERS // 2:
                    return store.delete_stream(stream, expected=ANY)
                return -len(store.append(stream, [_signed()] * 2, expected=ANY).versions)
            except StreamDeleted:
                return 0

        with ThreadPoolExecutor(_WRITERS) as pool:
            answers = list(pool.map(write, range(_WRITERS)))
        appended = -sum(answer for answer in answers if answer < 0)
        assert max(answers) == 1 + appended
        assert list(store.read_stream(stream)) == list(store.read_all(after=start)) == []


class ArchiveConformance:
    """A part of the suite; `store` must be ready for use."""

    def test_an_archived_stream_is_read_as_ever_and_takes_nothing_until_it_is_taken_out(
        self, store: EventStore
    ) -> None:
        start, stream, event_id = _last_position(store), _new(), uuid4()
        store.append(stream, [NewEvent(_signed(), id=event_id), _signed()], expected=NO_STREAM)
        assert not store.is_archived(stream)
        for _ in range(2):
            store.archive_stream(stream, expected=1)
        assert store.is_archived(stream)
        for expected in (ANY, STREAM_EXISTS, 1):
            with pytest.raises(StreamArchived, match="is archived"):
                store.append(stream, [_signed()], expected=expected)
        with pytest.raises(StreamArchived):
            store.append_batch([StreamAppend(_new(), [_signed()], ANY), StreamAppend(stream, [_signed()], ANY)])
        assert (
            [e.version for e in store.read_stream(stream)] == [e.version for e in store.read_all(after=start)] == [0, 1]
        )
        assert store.find(event_id) is not None
        assert store.head(stream) == 1
        for _ in range(2):
            store.unarchive_stream(stream)
        assert not store.is_archived(stream)
        assert store.append(stream, [_signed()], expected=1).version == 2

    def test_an_append_that_is_repeated_gets_its_results_though_the_stream_is_archived_by_now(
        self, store: EventStore
    ) -> None:
        stream, named = _new(), [NewEvent(_signed(), id=uuid4())]
        first = store.append(stream, named, expected=NO_STREAM)
        store.archive_stream(stream, expected=0)
        assert store.append(stream, named, expected=NO_STREAM) == first
        with pytest.raises(StreamArchived):
            store.append(stream, [NewEvent(_signed(), id=uuid4())], expected=0)

    def test_a_stream_is_archived_as_its_writer_saw_it(self, store: EventStore) -> None:
        stream = _new()
        with pytest.raises(WrongExpectedVersion) as refused:
            store.archive_stream(stream, expected=ANY)
        assert refused.value.actual is None
        store.append(stream, [_signed()], expected=NO_STREAM)
        with pytest.raises(WrongExpectedVersion) as refused:
            store.archive_stream(stream, expected=1)
        assert refused.value.actual == 0
        assert not store.is_archived(stream)

    def test_a_stream_is_archived_at_the_expected_version_under_concurrent_appends(self, store: EventStore) -> None:
        for _ in range(_RACES):
            stream = _new()
            store.append(stream, [_signed()], expected=NO_STREAM)

            def write(number: int, stream: str = stream) -> object:
                try:
                    if number % 2:
                        store.archive_stream(stream, expected=0)
                        return "archived"
                    return store.append(stream, [_signed()], expected=ANY).version
                except (StreamArchived, WrongExpectedVersion) as refused:
                    return refused

            with ThreadPoolExecutor(_WRITERS) as pool:
                answers = list(pool.map(write, range(4)))
            archived = "archived" in answers
            assert archived == store.is_archived(stream)
            assert (store.head(stream) == 0) >= archived, answers


class ClosedStreamConformance(DeletionConformance, ArchiveConformance):
    """Both parts, and what a store does that has streams of either kind."""

    def test_an_archived_stream_can_be_deleted(self, store: EventStore) -> None:
        stream = _new()
        store.append(stream, [_signed()], expected=NO_STREAM)
        store.archive_stream(stream, expected=0)
        assert store.delete_stream(stream, expected=0) == 1
        assert not store.is_archived(stream)
        with pytest.raises(StreamDeleted):
            store.append(stream, [_signed()], expected=ANY)

    def test_a_deleted_stream_cannot_be_archived(self, store: EventStore) -> None:
        stream = _new()
        store.append(stream, [_signed()], expected=NO_STREAM)
        store.delete_stream(stream, expected=0)
        with pytest.raises(StreamDeleted):
            store.archive_stream(stream, expected=ANY)
