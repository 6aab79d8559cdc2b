"""What every event store must do; a backend joins with a fixture named `store`.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self) -> EventStore: ...

Each test uses streams of its own, so one store may serve them all. A backend that does not do everything joins by the
parts for what it does: StreamConformance (append, read, repeat), EvolutionConformance, SnapshotConformance,
DeletionConformance, ArchiveConformance. StoreConformance is all of these. TransactionConformance, which wants a fixture
`begin` too, is for stores in a database that others write to as well.

What every event store must do with streams that are deleted or archived; a part of the conformance suite.

What a store must do in a caller's transaction; a part of the conformance suite, for stores in a database.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import uuid4

import pytest

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import SchemaIncompatible, StreamArchived, StreamDeleted, WrongExpectedVersion
from eventstore.event_types import event
from eventstore.fields.upcasting import Cast
from eventstore.identifiers import ANY, NO_STREAM, STREAM_EXISTS, Position
from eventstore.snapshots import AggregateSnapshot, SnapshotStore
from eventstore.store import EventStore, NewEvent, StreamAppend, TransactionalStore
from eventstore.testing.open_streams import StreamConformance as StreamConformance

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences


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


def _new(category: str = "lease") -> str:
    return f"{category}-{uuid4()}"


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


Begin = Callable[[], AbstractContextManager[Any]]


class Invoice(Aggregate):
    """The aggregate this part writes with."""

    @event
    class Issued:
        """A number is enough."""

        number: int


class JoiningStore(EventStore, TransactionalStore, Protocol):
    """An event store that takes part in transactions of others."""


class HandlerFailed(Exception):
    """What ends a transaction of these tests without a commit."""


def _issued(number: int = 1) -> Invoice.Issued:
    return Invoice.Issued(number=number)


class TransactionConformance:
    """A part of the suite; `store` must be ready for use, and `begin` open a transaction of a caller in its database.

    What `begin` returns is a context manager of a connection, committed at its end and rolled back by an error.
    """

    def test_what_is_appended_is_seen_within_at_once_and_by_others_after_the_commit(
        self, store: JoiningStore, begin: Begin
    ) -> None:
        stream = _new("invoice")
        with begin() as transaction:
            streams = store.within(transaction)
            streams.append(stream, [_issued(1)], expected=NO_STREAM)
            streams.append_batch([StreamAppend(stream, [_issued(2)], 0)])
            assert [recorded.data["number"] for recorded in streams.read_stream(stream)] == [1, 2]
            assert (streams.head(stream), store.head(stream)) == (1, None)
        assert [recorded.data["number"] for recorded in store.read_stream(stream)] == [1, 2]

    def test_what_is_rolled_back_was_never_there(self, store: JoiningStore, begin: Begin) -> None:
        stream = _new("invoice")
        with pytest.raises(HandlerFailed), begin() as transaction:  # noqa: PT012
            store.within(transaction).append(stream, [_issued()], expected=NO_STREAM)
            raise HandlerFailed
        assert (store.head(stream), list(store.read_stream(stream))) == (None, [])
        assert store.append(stream, [_issued()], expected=NO_STREAM).version == 0

    def test_a_refusal_by_what_is_seen_leaves_the_transaction_usable(self, store: JoiningStore, begin: Begin) -> None:
        taken, other = _new("invoice"), _new("invoice")
        store.append(taken, [_issued()], expected=NO_STREAM)
        with begin() as transaction:
            streams = store.within(transaction)
            with pytest.raises(WrongExpectedVersion) as refused:
                streams.append(taken, [_issued()], expected=NO_STREAM)
            streams.append(other, [_issued()], expected=NO_STREAM)
        assert (refused.value.actual, store.head(taken), store.head(other)) == (0, 0, 0)

    def test_a_repetition_within_gets_the_result_of_the_first(self, store: JoiningStore, begin: Begin) -> None:
        stream, events = _new("invoice"), [NewEvent(_issued(), id=uuid4())]
        with begin() as transaction:
            streams = store.within(transaction)
            first = streams.append(stream, events, expected=NO_STREAM)
            again = streams.append(stream, events, expected=ANY)
            assert (again, first.repeated, again.repeated) == (first, False, True)
            event = streams.find(first.ids[0])
        assert event is not None
        assert (event.stream, store.append(stream, events, expected=ANY)) == (stream, first)


class Gauge(Aggregate):
    """An aggregate whose event changes."""

    @event
    class Read:
        """As it was first."""

        value: int


class CarelessGauge(Aggregate, category="gauge"):
    """The same event with another type, and nothing said of the older ones."""

    @event
    class Read:
        """The number as a text."""

        value: str


class CarefulGauge(Aggregate, category="gauge"):
    """The same event with another type, and how the older ones are read."""

    @event(upcasters={1: [Cast("value", str)]})
    class Read:
        """The number as a text."""

        value: str


class EvolutionConformance:
    """Schemas that are new to a store are held against those it has."""

    def test_a_class_that_could_not_read_what_is_stored_is_refused(self, store: EventStore) -> None:
        stream = f"gauge-{uuid4()}"
        store.append(stream, [Gauge.Read(value=7)], expected=NO_STREAM)
        for _ in range(2):
            with pytest.raises(
                SchemaIncompatible, match=r"gauge\.read\.value .* it is long there, and string"
            ) as refused:
                store.append(stream, [CarelessGauge.Read(value="8")], expected=ANY)
        assert refused.value.remedy.endswith('Cast("value", …)')
        store.append(stream, [CarefulGauge.Read(value="9"), Gauge.Read(value=10)], expected=0)
        values = [event.value for one in store.read_stream(stream) for event in CarefulGauge.events_of(one)]
        assert values == ["7", "9", "10"]


class SnapshotConformance:
    """A part of the suite; `store` must be ready for use."""

    def test_a_snapshot_is_stored_until_a_newer_one_or_another_shape_replaces_it(self, store: SnapshotStore) -> None:
        stream, one, two = f"account-{uuid4()}", b"\0\0\0\0\1", b"\0\0\0\0\2"
        assert store.snapshot(stream) is None
        for version, shape, body, stored in (
            (4, one, b"first", True),
            (4, one, b"the same again", False),
            (3, one, b"late", False),
            (5, one, b"newer", True),
            (2, two, b"of another shape", True),
        ):
            offered = AggregateSnapshot(stream, version, shape + body)
            store.save_snapshot(offered)
            assert (store.snapshot(stream) == offered) == stored


class StoreConformance(StreamConformance, EvolutionConformance, SnapshotConformance, ClosedStreamConformance):
    """Tests that every event store passes. Subclass it and give it a fixture `store`.

    Examples:
        >>> class TestMyStore(StoreConformance):
        ...     @pytest.fixture
        ...     def store(self):
        ...         return MyStore()
    """
