"""A conversation is put together from what its events record; a store is a log, selected and followed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from eventstore import (
    ANY,
    Aggregate,
    Dispatcher,
    Metadata,
    NewEvent,
    Settings,
    SqlEventStore,
    event,
    subscription,
)
from eventstore import subscription as subscribes
from eventstore.backends.sql.process_rows import SqlInboxes
from eventstore.erasure import PersonalData
from eventstore.errors import (
    EventIdTaken,
    InvalidArgument,
    InvalidEventData,
    NotFound,
    NotFramedAvro,
    RegistryUnreachable,
    TopicMissing,
    UnknownSchema,
)
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroEncoder
from eventstore.inspection.selection import EVERYTHING, Selection
from eventstore.inspection.store_log import NO_VALUE, StoreLog, StreamState, event_at, stream_state
from eventstore.inspection.tracing import trace
from eventstore.kafka import entries
from eventstore.kafka.arrivals import ArrivalReader
from eventstore.kafka.entries import TopicLog
from eventstore.schema_registry import RegisteredSchema
from eventstore.store import Cause
from eventstore.topics import TopicRecord
from tests.errors import raises
from tests.ledger import Payment
from tests.notes import Note
from tests.unit import guestbook
from tests.unit.eventstore.client_records import Message
from tests.unit.eventstore.handlers import deliver_stored

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
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", guestbook.Order.place, Decimal(3), "tea").events  # type: ignore[union-attr]
    paid = Dispatcher(moneys).with_metadata(ordered.caused()).send("m1", Note.write, "paid")
    Dispatcher(parcels).with_metadata(paid.events[0].caused()).once(uuid4()).send("p1", guestbook.Order.ship, "Post")  # type: ignore[union-attr]
    assert tree(parcels, moneys) == [
        "command None",
        "  event order.placed",
        "    command note.write",
        "      event note.written",
        "        command order.ship",
        "          event order.shipped",
    ]


def test_a_command_whose_id_is_the_event_that_it_was_sent_for_stands_below_it(parcels: SqlEventStore) -> None:
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", guestbook.Order.place, Decimal(3), "tea").events  # type: ignore[union-attr]
    own = Metadata(correlation_id="talk")
    Dispatcher(parcels).with_metadata(own).once(ordered.id).send("p1", guestbook.Order.ship, "Post")
    assert tree(parcels)[2:] == ["    command order.ship", "      event order.shipped"]


def test_an_event_that_a_handler_appends_itself_stands_below_its_cause(parcels: SqlEventStore) -> None:
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", guestbook.Order.place, Decimal(3), "tea").events  # type: ignore[union-attr]
    parcels.append("order-p1", [guestbook.Order.Shipped(by="x")], expected=ANY, metadata=ordered.caused())
    assert tree(parcels)[1:] == ["  event order.placed", "    event order.shipped"]


def test_a_command_for_an_event_of_a_store_that_was_not_named_says_so(parcels, moneys):
    (ordered,) = Dispatcher(parcels).with_metadata(TALK).send("p1", guestbook.Order.place, Decimal(3), "tea").events  # type: ignore[union-attr]
    Dispatcher(moneys).with_metadata(ordered.caused()).send("m1", Note.write, "paid")
    found = trace("talk", [StoreLog(moneys)])
    assert [step.missing_cause for step in found.steps] == [str(ordered.id), None]


def test_causes_that_go_round_in_a_circle_are_all_shown(parcels: SqlEventStore) -> None:
    first, second = uuid4(), uuid4()
    for own, cause in ((first, second), (second, first)):
        why = Metadata(correlation_id="talk", causation_id=str(cause))
        parcels.append("order-p1", [NewEvent(guestbook.Order.Shipped(by="x"), id=own, metadata=why)], expected=ANY)
    assert tree(parcels) == ["event order.shipped", "  event order.shipped"]


def test_a_correlation_id_of_no_event_is_refused_with_what_was_read(parcels: SqlEventStore) -> None:
    with raises(NotFound, code="events-not-found", match=r"'nothing' in sqlite.*parcels\.db", remedy="--store-url"):
        trace("nothing", [StoreLog(parcels)])


def test_what_groups_did_with_an_event_is_known_from_their_inboxes(parcels: SqlEventStore) -> None:
    Dispatcher(parcels).with_metadata(TALK).send("p1", guestbook.Order.place, Decimal(3), "tea")

    @subscribes("order", group="booking")
    def book(event: guestbook.Order.Placed, tx: sa.Connection) -> None: ...

    deliver_stored(parcels, book, category="order")
    found = trace("talk", [StoreLog(parcels)], inboxes=[SqlInboxes(parcels.engine)])
    ((reaction,),) = [step.reactions for step in found.steps if step.kind == "event"]
    assert (reaction.group, reaction.topic, reaction.outcome) == ("booking", "order", "handled")
    assert reaction.time.tzinfo is UTC
    assert abs((datetime.now(UTC) - reaction.time).total_seconds()) < 60


def test_a_database_without_an_inbox_knows_nothing_and_gets_none(parcels: SqlEventStore) -> None:
    assert SqlInboxes(parcels.engine).reactions([uuid4()]) == {}
    assert not sa.inspect(parcels.engine).has_table("factfold_inbox")


def test_events_of_a_command_that_was_sent_for_an_event_name_both(parcels: SqlEventStore) -> None:
    why, same = uuid4(), uuid4()
    asked = Dispatcher(parcels).with_metadata(Metadata(correlation_id="talk", causation_id=str(why)))
    sent = asked.send("p1", guestbook.Order.place, Decimal(3), "tea")
    again = [asked.once(same).send("p1", guestbook.Order.ship, "Post") for _ in range(2)]
    first, second = parcels.read_stream("order-p1")
    assert first.metadata.causation_id == f"{sent.command.id} order.place {why}"
    assert second.metadata.causation_id == f"{same} order.ship {why}"
    assert [[one.id for one in found.events] for found in again] == [[second.id]] * 2  # type: ignore[union-attr]
    with raises(EventIdTaken, code="command-id-taken", match=r"as order\.ship,"):
        asked.once(same).send("p1", guestbook.Order.place, Decimal(3), "tea")


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
    Dispatcher(parcels).with_metadata(TALK).send("p1", guestbook.Order.place, Decimal(3), "tea")
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


# ---- What a record of any topic is shown as, and what a subscription reads of it, without a broker


EVENT_ID = "0198d0aa-0000-7000-8000-000000000001"
HEADERS = {
    "ce_id": EVENT_ID, "ce_type": "order.placed", "ce_subject": "order-o1", "ce_streamversion": "3",
    "ce_time": "2026-11-26T12:00:00+00:00", "ce_position": "7", "ce_correlationid": "talk",
}  # fmt: skip
ENVELOPE = RegisteredSchema.of(
    {"type": "record", "namespace": "shop.orders", "name": "Envelope", "fields": [{"name": "op", "type": "string"}]}
)


class Order(Aggregate):
    @event
    class Placed:
        amount: int


PLACED = Order.event_types["order.placed"]


class Schemas:
    """Schemas by id, in place of the topic or of a registry; counts what it was asked for."""

    def __init__(self, *known: RegisteredSchema, missing: Exception | None = None) -> None:
        self.known = {one.id: one for one in known}
        self.missing = missing or UnknownSchema("schema id is unknown", remedy="-")
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self.known:
            raise self.missing
        return self.known[schema_id]

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def log() -> Iterator[TopicLog]:
    with TopicLog("order", Settings.for_broker("127.0.0.1:1")) as opened:
        opened._schemas = Schemas(PLACED.registered)  # type: ignore[assignment]
        yield opened


def record(value: bytes | None, *, key: bytes | None = None, headers: dict[str, str] | None = None) -> TopicRecord:
    given = tuple((name, text.encode()) for name, text in (headers or {}).items())
    return TopicRecord("order", 2, 17, key, value, given, 1_764_158_400_123)


def test_an_event_is_shown_with_its_fields_and_headers(log: TopicLog) -> None:
    found = log._entry(record(PLACED.encode(Order.Placed(amount=3)), key=b"order-o1@3", headers=HEADERS))
    assert (found.form, found.data, found.place, found.key) == ("event", {"amount": 3}, "order[2]@17", "order-o1@3")
    assert found.event is not None
    assert (found.event.id, found.event.stream, found.event.version) == (UUID(EVENT_ID), "order-o1", 3)
    assert found.time.isoformat() == "2025-11-26T12:00:00.123000+00:00"


@pytest.mark.parametrize("missing", [UnknownSchema("-", remedy="-"), TopicMissing("-", remedy="-")])
def test_avro_of_a_registry_is_decoded_key_and_value(log: TopicLog, missing: Exception) -> None:
    """As of a table captured by a connector whose converter writes Avro."""
    log._settings = log._settings.model_copy(update={"registry": object()})
    log._schemas, log._registry = Schemas(missing=missing), Schemas(ENVELOPE)  # type: ignore[assignment]
    framed = AvroEncoder(ENVELOPE).encode({"op": "c"})
    found = log._entry(record(framed, key=framed))
    assert (found.form, found.data, found.key) == ("avro", {"op": "c"}, '{"op": "c"}')


def test_a_schema_that_nobody_knows_is_asked_for_once(log: TopicLog) -> None:
    registry = Schemas(missing=RegistryUnreachable("the registry is away", remedy="-"))
    log._settings = log._settings.model_copy(update={"registry": object()})
    log._schemas, log._registry = Schemas(), registry  # type: ignore[assignment]
    framed = AvroEncoder(ENVELOPE).encode({"op": "c"})
    for _ in range(3):
        found = log._entry(record(framed))
        assert (found.form, found.data, found.problem) == ("bytes", framed, "the registry is away")
    assert registry.asked == [ENVELOPE.id]


@pytest.mark.parametrize("lacking", ["ce_subject", "ce_time", "ce_streamversion"])
def test_an_event_with_headers_that_misstate_it_is_shown_with_the_reason(log: TopicLog, lacking: str) -> None:
    headers = {name: text for name, text in HEADERS.items() if name != lacking}
    found = log._entry(record(PLACED.encode(Order.Placed(amount=3)), headers=headers))
    assert found.form == "bytes"
    assert lacking in str(found.problem)


@pytest.mark.parametrize(
    ("value", "form", "data"),
    [
        (b'{"a": 1}', "json", {"a": 1}),
        (b"12", "json", 12),
        (b"[" * 100_000, "text", "[" * 100_000),
        ("für".encode(), "text", "für"),
        (b"", "text", ""),
        (b"\0\1", "text", "\0\1"),
        (b"\xff", "bytes", b"\xff"),
        (None, "deleted", None),
    ],
)
def test_what_is_no_event_is_shown_as_what_it_is(log: TopicLog, value: bytes | None, form: str, data: Any) -> None:
    found = log._entry(record(value, key=b"\xff\0k"))
    assert (found.form, found.data, found.problem, found.key) == (form, data, None, "\\xff\0k")


@pytest.mark.parametrize(
    ("selection", "is_selected"),
    [
        (Selection(), True),
        (Selection(streams=("order-o1",), types=("order.placed",), correlation_id="talk"), True),
        (Selection(streams=("order-o2",)), False),
        (Selection(categories=("order",)), True),
        (Selection(categories=("payment",)), False),
        (Selection(types=("order.shipped",)), False),
        (Selection(correlation_id="other"), False),
        (Selection(from_version=3, to_version=3), True),
        (Selection(from_version=4), False),
        (Selection(to_version=2), False),
    ],
)
def test_records_are_selected_by_their_headers_before_they_are_decoded(selection: Selection, is_selected: bool) -> None:
    assert entries._is_selected(selection, record(b"", headers=HEADERS)) is is_selected


@pytest.mark.parametrize("selection", [Selection(streams=("order-o1",)), Selection(to_version=3)])
def test_a_record_without_headers_is_of_no_stream(selection: Selection) -> None:
    assert not entries._is_selected(selection, record(b"{}"))


RECEIVED, REFUNDED = event_type_of(Payment.Received), event_type_of(Payment.Refunded)


@pytest.fixture
def reader():
    known = {kind.schema_id: kind.registered for kind in (RECEIVED, REFUNDED)}
    schemas = SimpleNamespace(schema=known.__getitem__, knows_type=lambda name: name in (RECEIVED.name, REFUNDED.name))

    def book(event: Payment.Received) -> None: ...

    return ArrivalReader(subscription("payment", group="g")(book), schemas, PersonalData(None))


def headed(kind: Any) -> Message:
    """A record whose frame is whole, and whose body is none."""
    event_id = ("ce_id", b"00000000-0000-4000-8000-000000000001")
    return Message(kind.encode(kind.cls(amount=1))[:5], [("ce_type", kind.name.encode()), event_id])


def test_the_header_decides_before_the_body_is_decoded(reader):
    """A body that cannot be decoded proves that nobody tried."""
    unwanted = reader.read(headed(REFUNDED), "payment")
    assert (unwanted.type, unwanted.problem, unwanted.topic) == (None, None, "payment")
    wanted = reader.read(headed(RECEIVED), "payment")
    assert isinstance(wanted.problem, NotFramedAvro)
