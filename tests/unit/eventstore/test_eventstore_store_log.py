"""The events of a store as a log: selected by the database, followed without one left out or twice."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from threading import Event, Timer

import pytest

from eventstore import ANY, Aggregate, SqlEventStore, event
from eventstore.errors import EventsNotFound, InvalidBound, InvalidEventData
from eventstore.inspection.selection import EVERYTHING, Selection
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.stream_states import NO_VALUE, StreamState, event_at, stream_state


class Counter(Aggregate):
    counted: list[int] = []  # noqa: RUF012 - a state's default, made anew for each

    @event
    class Counted:
        by: int

    def on_counted(self, event: Counted) -> None:
        self.counted.append(event.by)


def count(store: SqlEventStore, stream: str, *numbers: int) -> None:
    store.append(stream, [Counter.Counted(by=number) for number in numbers], expected=ANY)


def test_a_store_is_followed_from_its_last_events_on_and_past_those_that_are_not_selected(store: SqlEventStore) -> None:
    count(store, "counter-a", 1, 2)
    count(store, "counter-b", 3)
    stop = Event()
    followed = StoreLog(store).follow(Selection(streams=("counter-a",)), limit=1, stop=stop)
    assert next(followed).data == {"by": 2}
    count(store, "counter-b", 4, 5)
    count(store, "counter-a", 6, 7)
    assert [entry.data["by"] for entry in itertools.islice(followed, 2)] == [6, 7]
    stop.set()
    assert list(followed) == []


def test_an_empty_store_is_followed_from_its_first_event_on(store: SqlEventStore) -> None:
    stop = Event()
    followed = StoreLog(store).follow(EVERYTHING, limit=5, stop=stop)
    later = Timer(0.1, count, (store, "counter-a", 1))
    later.start()
    assert next(followed).data == {"by": 1}
    later.join()
    stop.set()
    assert list(followed) == []


def test_pages_of_a_selection_join_without_a_gap(store: SqlEventStore) -> None:
    for start in range(0, 2_400, 400):
        count(store, "counter-a", *range(start, start + 400))
        count(store, "counter-b", *range(3))
    chosen = Selection(streams=("counter-a",))
    assert [one.data["by"] for one in store.read_selected(chosen)] == list(range(2_400))
    assert [one.data["by"] for one in store.read_selected(chosen, newest_first=True, limit=1_500)] == list(
        range(2_399, 899, -1)
    )
    with pytest.raises(InvalidBound):
        list(store.read_selected(chosen, limit=-1))


def test_events_of_deleted_streams_are_not_selected(store: SqlEventStore) -> None:
    count(store, "counter-a", 1)
    count(store, "counter-b", 2)
    store.delete_stream("counter-a", expected=0)
    assert [one.data["by"] for one in store.read_selected(EVERYTHING)] == [2]
    with pytest.raises(EventsNotFound, match="or was deleted"):
        event_at(store, "counter-a")


def test_a_state_that_a_handler_changes_in_its_place_is_compared_with_what_it_was(store: SqlEventStore) -> None:
    count(store, "counter-a", 1, 2, 3)
    assert stream_state(store, Counter, "counter-a", version=1).changes == {"counted": ([1], [1, 2])}
    assert stream_state(store, Counter, "counter-a", version=0).changes == {"counted": ([], [1])}


def test_a_field_that_only_one_state_has_is_a_change(store: SqlEventStore) -> None:
    count(store, "counter-a", 1)
    found = StreamState(event_at(store, "counter-a"), {"old": 1}, {"new": 2})
    assert found.changes == {"old": (1, NO_VALUE), "new": (NO_VALUE, 2)}


NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def test_times_that_no_event_can_have_are_refused() -> None:
    with pytest.raises(InvalidEventData, match="no time zone"):
        Selection(since=datetime(2026, 11, 26))
    with pytest.raises(InvalidBound, match="which is before it"):
        Selection(since=NOW, until=NOW - timedelta(seconds=1))
    assert Selection(since=NOW, until=NOW).has_time(NOW)
