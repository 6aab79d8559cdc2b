"""A conversation is put together from what its events record, over services."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, Dispatcher, Metadata, NewEvent, SqlEventStore, command, event
from eventstore import subscription as subscribes
from eventstore.backends.sql.reactions import SqlInboxes
from eventstore.backends.sql.source import StoreSource
from eventstore.delivery import Subscriber
from eventstore.errors import CommandIdTaken, EventsNotFound
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.tracing import trace
from eventstore.messages import Cause


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


def test_commands_that_were_sent_for_events_stand_below_them_over_services(
    parcels: SqlEventStore, moneys: SqlEventStore
) -> None:
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


def test_a_command_for_an_event_of_a_store_that_was_not_named_says_so(
    parcels: SqlEventStore, moneys: SqlEventStore
) -> None:
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


def test_a_store_that_is_named_twice_is_one(parcels: SqlEventStore) -> None:
    Dispatcher(parcels).with_metadata(TALK).send("p1", Parcel.order, 3)
    assert len(tree(parcels, parcels)) == 2


def test_a_correlation_id_of_no_event_is_refused_with_what_was_read(parcels: SqlEventStore) -> None:
    with pytest.raises(EventsNotFound, match=r"'nothing' in sqlite.*parcels\.db") as refused:
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
    with pytest.raises(CommandIdTaken, match=r"as parcel\.send,"):
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
