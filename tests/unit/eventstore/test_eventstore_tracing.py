"""A conversation is put together from what its events record; a store is a log, selected and followed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Timer
from uuid import uuid4

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, Dispatcher, Metadata, NewEvent, SqlEventStore, Subscriber, command, event
from eventstore import subscription as subscribes
from eventstore.backends.sql.process_rows import SqlInboxes
from eventstore.backends.sql.source import StoreSource
from eventstore.errors import EventIdTaken, InvalidArgument, InvalidEventData, NotFound
from eventstore.inspection.selection import EVERYTHING, Selection
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.stream_states import NO_VALUE, StreamState, event_at, stream_state
from eventstore.inspection.tracing import trace
from eventstore.messages import Cause
from tests.errors import raises


class Parcel(Aggregate):
    sent: bool = False

    @event
    class Ordered:
        amount: int

    @event
    class Sent:
        by: str

    @command
    def order(self, amount: int) -> None:
        self.emit(self.Ordered(amount=amount))

    @command
    def send(self, by: str) -> None:
        self.emit(self.Sent(by=by))


class Money(Aggregate):
    @event
    class Taken:
        amount: int

    @command
    def take(self, amount: int) -> None:
        self.emit(self.Taken(amount=amount))


TALK = Metadata(correlation_id="talk")


@pytest.fixture
def parcels(tmp_path: Path) -> Iterator[SqlEventStore]:
    with SqlEventStore(f"sqlite:///{tmp_path / 'parcels.db'}", source="/parcels") as store:
        store.create_tables()
        yield store


@pytest.fixture
def moneys(tmp_path: Path) -> Iterator[SqlEventStore]:
    with SqlEventStore(f"sqlite:///{tmp_path / 'moneys.db'}", source="/money") as store:
        store.create_tables()
        yield store


def tree(*stores: SqlEventStore, correlation: str = "talk") -> list[str]:
    """One line a step, indented by its depth."""
    found = trace(correlation, [StoreLog(store) for store in stores])
    return [f"{'  ' * step.depth}{step.kind} {step.name}" for step in found.steps]


def test_commands_that_were_sent_for_events_stand_below_them_over_services(parcels, moneys):
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", Parcel.order, 3).events  # type: ignore[union-attr]
    paid = Dispatcher(moneys).with_metadata(ordered.caused()).send("m1", Money.take, 3)
    Dispatcher(parcels).with_metadata(paid.events[0].caused()).once(uuid4()).send("p1", Parcel.send, "Post")  # type: ignore[union-attr]
    assert tree(parcels, moneys) == [
        "command None",
        "  event parcel.ordered",
        "    command money.take",
        "      event money.taken",
        "        command parcel.send",
        "          event parcel.sent",
    ]


def test_a_command_whose_id_is_the_event_that_it_was_sent_for_stands_below_it(parcels: SqlEventStore) -> None:
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", Parcel.order, 3).events  # type: ignore[union-attr]
    own = Metadata(correlation_id="talk")
    Dispatcher(parcels).with_metadata(own).once(ordered.id).send("p1", Parcel.send, "Post")
    assert tree(parcels)[2:] == ["    command parcel.send", "      event parcel.sent"]


def test_an_event_that_a_handler_appends_itself_stands_below_its_cause(parcels: SqlEventStore) -> None:
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", Parcel.order, 3).events  # type: ignore[union-attr]
    parcels.append("parcel-p1", [Parcel.Sent(by="x")], expected=ANY, metadata=ordered.caused())
    assert tree(parcels)[1:] == ["  event parcel.ordered", "    event parcel.sent"]


def test_a_command_for_an_event_of_a_store_that_was_not_named_says_so(parcels, moneys):
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", Parcel.order, 3).events  # type: ignore[union-attr]
    Dispatcher(moneys).with_metadata(ordered.caused()).send("m1", Money.take, 3)
    found = trace("talk", [StoreLog(moneys)])
    assert [step.missing_cause for step in found.steps] == [str(ordered.id), None]


def test_causes_that_go_round_in_a_circle_are_all_shown(parcels: SqlEventStore) -> None:
    first, second = uuid4(), uuid4()
    for own, cause in ((first, second), (second, first)):
        why = Metadata(correlation_id="talk", causation_id=str(cause))
        parcels.append("parcel-p1", [NewEvent(Parcel.Sent(by="x"), id=own, metadata=why)], expected=ANY)
    assert tree(parcels) == ["event parcel.sent", "  event parcel.sent"]


def test_a_correlation_id_of_no_event_is_refused_with_what_was_read(parcels: SqlEventStore) -> None:
    with raises(NotFound, code="events-not-found", match=r"'nothing' in sqlite.*parcels\.db") as refused:
        trace("nothing", [StoreLog(parcels)])
    assert "--store-url" in refused.value.remedy


def test_what_groups_did_with_an_event_is_known_from_their_inboxes(parcels: SqlEventStore) -> None:
    Dispatcher(parcels).with_metadata(TALK).send("p1", Parcel.order, 3)

    @subscribes("parcel", group="booking")
    def book(event: Parcel.Ordered, tx: sa.Connection) -> None: ...

    with Subscriber(book, StoreSource(parcels, book, category="parcel"), engine=parcels.engine) as subscriber:
        subscriber.run_once()
    found = trace("talk", [StoreLog(parcels)], inboxes=[SqlInboxes(parcels.engine)])
    ((reaction,),) = [step.reactions for step in found.steps if step.kind == "event"]
    assert (reaction.group, reaction.topic, reaction.outcome) == ("booking", "parcel", "handled")
    assert reaction.time.tzinfo is UTC
    assert abs((datetime.now(UTC) - reaction.time).total_seconds()) < 60


def test_a_database_without_an_inbox_knows_nothing_and_gets_none(parcels: SqlEventStore) -> None:
    assert SqlInboxes(parcels.engine).reactions([uuid4()]) == {}
    assert not sa.inspect(parcels.engine).has_table("factfold_inbox")


def test_events_of_a_command_that_was_sent_for_an_event_name_both(parcels: SqlEventStore) -> None:
    why, same = uuid4(), uuid4()
    asked = Dispatcher(parcels).with_metadata(Metadata(correlation_id="talk", causation_id=str(why)))
    sent = asked.send("p1", Parcel.order, 3)
    again = [asked.once(same).send("p1", Parcel.send, "Post") for _ in range(2)]
    first, second = parcels.read_stream("parcel-p1")
    assert first.metadata.causation_id == f"{sent.command.id} parcel.order {why}"
    assert second.metadata.causation_id == f"{same} parcel.send {why}"
    assert [[one.id for one in found.events] for found in again] == [[second.id]] * 2  # type: ignore[union-attr]
    with raises(EventIdTaken, code="command-id-taken", match=r"as parcel\.send,"):
        asked.once(same).send("p1", Parcel.order, 3)


ID, OF = "0198d0aa-0000-7000-8000-000000000001", "0198d0aa-0000-7000-8000-000000000002"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (ID, Cause(ID)),
        (f"{ID} order.ship", Cause(ID, "order.ship")),
        (f"{ID} order.ship {OF}", Cause(ID, "order.ship", OF)),
        (f"{ID} order.ship by hand", Cause(f"{ID} order.ship by hand")),
        (f"{ID} a b c", Cause(f"{ID} a b c")),
        ("an event", Cause("an event")),
        (None, None),
    ],
)
def test_a_causation_id_is_read_as_it_was_written(text: str | None, cause: Cause | None) -> None:
    assert Cause.parse(text) == cause
    assert cause is None or str(cause) == text


def test_an_event_that_two_logs_hold_is_shown_once(parcels: SqlEventStore) -> None:
    """The first of the logs is shown."""
    Dispatcher(parcels).with_metadata(TALK).send("p1", Parcel.order, 3)
    found = trace("talk", [StoreLog(parcels, name="first"), StoreLog(parcels, name="second")])
    assert [entry.log for entry in found.events] == ["first"]


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
    with raises(InvalidArgument, code="invalid-bound"):
        list(store.read_selected(chosen, limit=-1))


def test_events_of_deleted_streams_are_not_selected(store: SqlEventStore) -> None:
    count(store, "counter-a", 1)
    count(store, "counter-b", 2)
    store.delete_stream("counter-a", expected=0)
    assert [one.data["by"] for one in store.read_selected(EVERYTHING)] == [2]
    with raises(NotFound, code="events-not-found", match="or was deleted"):
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
    with raises(InvalidArgument, code="invalid-bound", match="which is before it"):
        Selection(since=NOW, until=NOW - timedelta(seconds=1))
    assert Selection(since=NOW, until=NOW).has_time(NOW)
