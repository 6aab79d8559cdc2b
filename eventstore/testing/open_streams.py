"""What every event store must do with streams that are open: append, read, repeat; a part of the conformance suite."""

# ruff: noqa: S101, D102  # assertions are what this module is for, and its names are the sentences

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import TypeVar
from uuid import uuid4

import pytest

from eventstore.aggregates.aggregate import Aggregate
from eventstore.errors import (
    EventIdTaken,
    InvalidArgument,
    InvalidEventData,
    InvalidIdentifier,
    WrongExpectedVersion,
)
from eventstore.event_types import event
from eventstore.identifiers import ANY, NO_STREAM, STREAM_EXISTS, ExpectedVersion, Position
from eventstore.store import EventStore, Metadata, NewEvent, StreamAppend
from eventstore.topics import MAX_EVENT_BYTES

T = TypeVar("T")

WRITERS = 16
_HOSTILE = ("'; drop table events; --", '"quoted"', "%s %(x)s {0}", "ключ 鍵 🔑", "a-b@3", "\\", " spaced ", "x" * 240)
_NO_NAMES = (
    "", "nodash", "Order-1", "order-", "-1", "order-a\x00b", "order-a\nb", "order-\ud800", "o-" + "x" * 300
)  # fmt: skip


class Account(Aggregate):
    """The aggregate the suite writes with."""

    @event
    class Opened:
        """Money in, and when."""

        owner: str
        balance: Decimal
        at: datetime


class Parcel(Aggregate):
    """A second category."""

    @event
    class Sent:
        """A number is enough."""

        number: int


def _opened(owner: str = "Ada") -> Account.Opened:
    return Account.Opened(owner=owner, balance=Decimal("12.3400"), at=datetime(2026, 1, 2, tzinfo=UTC))


def _new(category: str = "account") -> str:
    return f"{category}-{uuid4()}"


def _of(store: EventStore, events: int) -> str:
    """Return a new stream of so many events."""
    stream = _new()
    if events:
        store.append(stream, [_opened()] * events, expected=NO_STREAM)
    return stream


class StreamConformance:
    """A part of the suite; `store` must be ready for use."""

    def test_events_come_back_as_they_were_appended(self, store: EventStore) -> None:
        stream, before = _new(), datetime.now(UTC)
        result = store.append(stream, [_opened("Ada"), _opened("Bob")], expected=NO_STREAM)
        first, second = store.read_stream(stream)
        assert first.data == {
            "owner": "Ada",
            "balance": Decimal("12.34"),
            "at": datetime(2026, 1, 2, tzinfo=UTC),
        }
        assert (second.data["owner"], second.type) == ("Bob", "account.opened")
        assert [first.id, second.id] == list(result.ids)
        assert [first.position, second.position] == list(result.positions)
        assert before - timedelta(seconds=1) < first.time <= datetime.now(UTC) + timedelta(seconds=1)
        assert Account.events_of(first) == [_opened("Ada")]

    def test_versions_count_from_zero_without_gaps(self, store: EventStore) -> None:
        stream = _new()
        first = store.append(stream, [_opened(), _opened()], expected=NO_STREAM)
        second = store.append(stream, [_opened()], expected=first.version)
        assert (first.versions, second.versions) == (range(2), range(2, 3))
        assert [recorded.version for recorded in store.read_stream(stream)] == [0, 1, 2]
        assert store.head(stream) == 2

    def test_a_stream_without_events_reads_as_nothing(self, store: EventStore) -> None:
        stream = _new()
        assert list(store.read_stream(stream)) == []
        assert store.head(stream) is None

    def test_a_broken_expectation_is_refused_with_the_actual_version(self, store: EventStore) -> None:
        cases: list[tuple[int, ExpectedVersion, int | None]] = [
            (2, NO_STREAM, 1), (2, 0, 1), (2, 7, 1), (0, 0, None), (0, STREAM_EXISTS, None)
        ]  # fmt: skip
        for present, expected, actual in cases:
            stream = _of(store, present)
            with pytest.raises(WrongExpectedVersion) as refused:
                store.append(stream, [_opened()], expected=expected)
            assert (refused.value.stream, refused.value.expected) == (stream, expected)
            assert refused.value.actual == actual
            assert len(list(store.read_stream(stream))) == present

    def test_a_met_expectation_is_accepted(self, store: EventStore) -> None:
        cases: list[tuple[int, ExpectedVersion]] = [(0, ANY), (2, ANY), (2, STREAM_EXISTS), (2, 1)]
        for present, expected in cases:
            assert store.append(_of(store, present), [_opened()], expected=expected).version == present

    def test_a_batch_answers_in_the_order_given(self, store: EventStore) -> None:
        old, other, new = _new(), _new("parcel"), _new()
        store.append(old, [_opened()], expected=NO_STREAM)
        results = store.append_batch(
            [
                StreamAppend(other, [Parcel.Sent(number=1), Parcel.Sent(number=2)], NO_STREAM),
                StreamAppend(old, [_opened()], 0),
                StreamAppend(new, [_opened()], ANY),
            ]
        )
        assert [(result.stream, result.version) for result in results] == [(other, 1), (old, 1), (new, 0)]
        for result in results:
            stored = list(store.read_stream(result.stream, from_version=result.versions[0]))
            assert [recorded.id for recorded in stored] == list(result.ids)
            assert [recorded.position for recorded in stored] == list(result.positions)

    def test_a_batch_is_stored_whole_or_not_at_all(self, store: EventStore) -> None:
        taken, new = _new(), _new()
        store.append(taken, [_opened()], expected=NO_STREAM)
        with pytest.raises(WrongExpectedVersion) as refused:
            store.append_batch([StreamAppend(new, [_opened()], NO_STREAM), StreamAppend(taken, [_opened()], NO_STREAM)])
        assert (refused.value.stream, refused.value.actual) == (taken, 0)
        assert store.head(new) is None

    def test_a_stream_twice_in_a_batch_is_refused(self, store: EventStore) -> None:
        append = StreamAppend(_new(), [_opened()], ANY)
        with pytest.raises(InvalidArgument, match="twice"):
            store.append_batch([append, append])

    def test_an_event_that_no_topic_would_take_is_refused_and_nothing_is_stored(self, store: EventStore) -> None:
        stream = _new("account")
        store.append(stream, [_opened("x" * (MAX_EVENT_BYTES - 100))], expected=NO_STREAM)
        with pytest.raises(InvalidArgument, match="longer than a topic takes"):
            store.append(stream, [_opened(), _opened("x" * MAX_EVENT_BYTES)], expected=0)
        assert store.head(stream) == 0

    def test_an_append_of_nothing_is_refused(self, store: EventStore) -> None:
        with pytest.raises(InvalidArgument, match="nothing"):
            store.append(_new(), [], expected=ANY)
        assert store.append_batch([]) == []

    def test_a_part_of_a_stream_is_read_by_its_bounds(self, store: EventStore) -> None:
        stream = _new()
        store.append(stream, [_opened()] * 5, expected=NO_STREAM)
        part = store.read_stream(stream, from_version=1, to_version=3)
        assert [recorded.version for recorded in part] == [1, 2, 3]

    def test_a_part_of_a_stream_is_read_backwards_and_up_to_a_limit(self, store: EventStore) -> None:
        stream = _new()
        store.append(stream, [_opened()] * 5, expected=NO_STREAM)
        part = store.read_stream(stream, from_version=1, to_version=3, backwards=True)
        assert [recorded.version for recorded in part] == [3, 2, 1]
        for backwards, expected in ((False, [0, 1]), (True, [4, 3])):
            part = store.read_stream(stream, backwards=backwards, limit=2)
            assert [recorded.version for recorded in part] == expected
        assert list(store.read_stream(stream, limit=0)) == []

    def test_a_bound_below_zero_is_refused(self, store: EventStore) -> None:
        stream = _of(store, 3)
        for bound in ({"from_version": -1}, {"to_version": -1}, {"to_version": -2}, {"limit": -1}):
            with pytest.raises(InvalidArgument, match="below zero"):
                store.read_stream(stream, **bound)  # type: ignore[arg-type]  # one of several integers
        with pytest.raises(InvalidArgument, match="below zero"):
            store.read_all(limit=-1)

    def test_a_place_before_all_others_is_where_reading_begins(self, store: EventStore) -> None:
        store.append(_new(), [_opened()], expected=NO_STREAM)
        everything = [recorded.id for recorded in store.read_all()]
        for place in (Position(0, 0), Position(0, -1), Position(-5, 3)):
            assert [recorded.id for recorded in store.read_all(after=place)] == everything

    def test_bounds_that_nothing_is_between_read_as_nothing(self, store: EventStore) -> None:
        stream = _new()
        store.append(stream, [_opened()] * 3, expected=NO_STREAM)
        for first, last in ((3, None), (2, 1), (7, 9)):
            for backwards in (False, True):
                part = store.read_stream(stream, from_version=first, to_version=last, backwards=backwards)
                assert list(part) == []

    def test_a_stream_is_read_up_to_a_time(self, store: EventStore) -> None:
        stream = _new()
        times = [store.append(stream, [_opened()], expected=ANY).time for _ in range(3)]
        for until, expected in ((times[1], [0, 1]), (times[0] - timedelta(days=1), []), (times[2], [0, 1, 2])):
            elsewhere = until.astimezone(timezone(timedelta(hours=-7)))
            part = store.read_stream(stream, until=elsewhere)
            assert [recorded.version for recorded in part] == expected
        assert [recorded.version for recorded in store.read_stream(stream, until=times[1], backwards=True)] == [1, 0]
        with pytest.raises(InvalidEventData, match="time zone"):
            store.read_stream(stream, until=datetime(2026, 1, 1))

    def test_a_long_stream_is_read_to_its_end(self, store: EventStore) -> None:
        stream = _new("parcel")
        store.append(stream, [Parcel.Sent(number=n) for n in range(2500)], expected=NO_STREAM)
        assert [recorded.data["number"] for recorded in store.read_stream(stream)] == list(range(2500))
        down = store.read_stream(stream, backwards=True)
        assert [recorded.data["number"] for recorded in down] == list(range(2499, -1, -1))

    def test_everything_is_read_once_in_order_from_any_checkpoint(self, store: EventStore) -> None:
        start = _last_position(store)
        streams = [_new() for _ in range(3)]
        for stream in streams * 2:
            store.append(stream, [_opened()], expected=ANY)
        seen = list(store.read_all(after=start))
        assert [recorded.stream for recorded in seen] == streams * 2
        positions = [recorded.position for recorded in seen]
        assert positions == sorted(positions)
        assert [recorded.id for recorded in store.read_all(after=positions[3])] == [e.id for e in seen[4:]]

    def test_everything_of_one_category_up_to_a_limit(self, store: EventStore) -> None:
        start = _last_position(store)
        for number in range(4):
            store.append(_new(), [_opened()], expected=NO_STREAM)
            store.append(_new("parcel"), [Parcel.Sent(number=number)], expected=NO_STREAM)
        parcels = store.read_all(after=start, category="parcel", limit=3)
        assert [recorded.data["number"] for recorded in parcels] == [0, 1, 2]
        assert len(list(store.read_all(after=start))) == 8

    def test_metadata_is_stored_by_append_and_by_event(self, store: EventStore) -> None:
        stream = _new()
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        shared = Metadata(correlation_id="order 7", causation_id="c-1", traceparent=trace)
        own = Metadata(correlation_id="another")
        store.append(stream, [_opened(), NewEvent(_opened(), metadata=own)], expected=ANY, metadata=shared)
        assert [recorded.metadata for recorded in store.read_stream(stream)] == [shared, own]

    def test_an_event_id_names_one_event_for_ever(self, store: EventStore) -> None:
        stream, event_id = _new(), uuid4()
        store.append(stream, [NewEvent(_opened(), id=event_id)], expected=ANY)
        assert [recorded.id for recorded in store.read_stream(stream)] == [event_id]
        with pytest.raises(EventIdTaken):
            store.append(_new(), [NewEvent(_opened(), id=event_id)], expected=ANY)

    def test_an_append_that_is_repeated_with_its_ids_gets_the_result_of_the_first(self, store: EventStore) -> None:
        stream, ids = _new(), [uuid4(), uuid4()]
        events = [NewEvent(_opened(), id=event_id) for event_id in ids]
        first = store.append(stream, events, expected=NO_STREAM)
        store.append(stream, [_opened()], expected=1)
        for expected in (NO_STREAM, ANY):
            again = store.append(stream, events, expected=expected)
            assert (again, first.repeated, again.repeated) == (first, False, True)
        assert store.head(stream) == 2

    def test_a_batch_that_is_repeated_with_its_ids_gets_the_results_of_the_first(self, store: EventStore) -> None:
        appends = [StreamAppend(_new(), [NewEvent(_opened(), id=uuid4())], NO_STREAM) for _ in range(3)]
        assert store.append_batch(appends) == store.append_batch(appends)
        assert [store.head(str(append.stream)) for append in appends] == [0, 0, 0]

    def test_what_repeats_an_append_in_part_only_is_refused(self, store: EventStore) -> None:
        stream, ids = _new(), [uuid4(), uuid4()]
        one, two = (NewEvent(_opened(), id=event_id) for event_id in ids)
        store.append(stream, [one, two], expected=NO_STREAM)
        new = NewEvent(_opened(), id=uuid4())
        for events in ([two, one], [one, new], [two, new], [one, _opened()], [two, two]):
            with pytest.raises(EventIdTaken):
                store.append(stream, events, expected=ANY)
            with pytest.raises(EventIdTaken):
                store.append(_new(), events, expected=NO_STREAM)
        assert store.head(stream) == 1

    def test_an_event_is_found_by_its_id(self, store: EventStore) -> None:
        stream, event_id = _new(), uuid4()
        store.append(stream, [_opened(), NewEvent(_opened(), id=event_id)], expected=NO_STREAM)
        event = store.find(event_id)
        assert event == list(store.read_stream(stream))[1]
        assert store.find(uuid4()) is None

    def test_of_repetitions_at_once_one_is_appended(self, store: EventStore) -> None:
        stream, events = _new(), [NewEvent(_opened(), id=uuid4()) for _ in range(3)]
        results = _at_once(lambda n: store.append(stream, events, expected=ANY))
        assert len(set(results)) == 1
        assert store.head(stream) == 2

    def test_a_value_that_does_not_fit_is_refused_and_nothing_is_stored(self, store: EventStore) -> None:
        stream = _new()
        naive = Account.Opened(owner="Ada", balance=Decimal(1), at=datetime(2026, 1, 2))
        with pytest.raises(InvalidEventData, match="time zone"):
            store.append(stream, [_opened(), naive], expected=ANY)
        assert store.head(stream) is None

    def test_hostile_stream_ids_are_just_text(self, store: EventStore) -> None:
        for stream_id in _HOSTILE:
            stream = f"account-{stream_id}"
            result = store.append(stream, [_opened()], expected=ANY)
            *_, last = store.read_stream(stream)
            assert (last.stream, last.version) == (stream, result.version)

    def test_names_that_are_none_are_refused(self, store: EventStore) -> None:
        for stream in _NO_NAMES:
            with pytest.raises(InvalidIdentifier):
                store.append(stream, [_opened()], expected=ANY)

    def test_writers_of_any_version_leave_no_gap(self, store: EventStore) -> None:
        stream = _new("parcel")
        results = _at_once(lambda n: store.append(stream, [Parcel.Sent(number=n)] * 3, expected=ANY).versions)
        stored = list(store.read_stream(stream))
        assert [recorded.version for recorded in stored] == list(range(3 * WRITERS))
        assert sorted(version for versions in results for version in versions) == list(range(3 * WRITERS))

    def test_of_writers_expecting_one_version_one_wins(self, store: EventStore) -> None:
        stream = _new("parcel")
        store.append(stream, [Parcel.Sent(number=0)], expected=NO_STREAM)

        def write(number: int) -> int | WrongExpectedVersion:
            try:
                return store.append(stream, [Parcel.Sent(number=number)], expected=0).version
            except WrongExpectedVersion as refused:
                return refused

        answers = _at_once(write)
        refusals = [answer for answer in answers if isinstance(answer, WrongExpectedVersion)]
        assert [answer for answer in answers if isinstance(answer, int)] == [1]
        assert [refused.actual for refused in refusals] == [1] * (WRITERS - 1)
        assert store.head(stream) == 1

    def test_batches_that_cross_each_other_all_arrive(self, store: EventStore) -> None:
        streams = [_new("parcel") for _ in range(4)]

        def write(number: int) -> None:
            order = streams if number % 2 else streams[::-1]
            store.append_batch([StreamAppend(stream, [Parcel.Sent(number=number)], ANY) for stream in order])

        _at_once(write)
        assert [store.head(stream) for stream in streams] == [WRITERS - 1] * 4


def _at_once(work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, range(WRITERS)))


def _last_position(store: EventStore) -> Position | None:
    last = None
    for recorded in store.read_all():
        last = recorded.position
    return last
