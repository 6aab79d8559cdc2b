"""Events of older versions are read as of today, wherever they are read."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from eventstore import ANY, Aggregate, Dispatcher, MemoryEventStore, event, subscription
from eventstore.errors import DeclarationError, InvalidEventData, NewerEvent
from eventstore.event_types import event_type_of
from eventstore.fields.upcasting import Cast, Default, Drop, Rename, Retype
from tests.shipments import ORDERED_SECOND, ORDERED_TODAY, First, Shipment, ordered_first
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource


@pytest.fixture
def store() -> MemoryEventStore:
    store = MemoryEventStore()
    lost, paid = First.Gone(), First.PaidAndSent(amount=31, carrier="sea")
    store.append("shipment-1", [ordered_first(), ORDERED_SECOND, ORDERED_TODAY, paid, lost], expected=ANY)
    return store


def test_a_stream_of_several_versions_is_one_story(store: MemoryEventStore) -> None:
    events = [event for recorded in store.read_stream("shipment-1") for event in Shipment.events_of(recorded)]
    assert events == [
        Shipment.Ordered(
            customer_id=7, amount=Decimal(30), currency="EUR", at=dt.datetime(2024, 2, 29, tzinfo=dt.UTC), priority=3
        ),
        Shipment.Ordered(
            customer_id=8, amount=Decimal(40), currency="EUR", at=dt.datetime(2025, 3, 1, tzinfo=dt.UTC), priority=3
        ),
        ORDERED_TODAY,
        Shipment.Paid(amount=Decimal(31)),
        Shipment.Sent(carrier="sea"),
        Shipment.Lost(why="nobody knows"),
    ]


def test_an_aggregate_is_loaded_from_all_of_them_and_keeps_the_stored_version(store: MemoryEventStore) -> None:
    shipment = Dispatcher(store).load(Shipment, "1")
    assert (shipment.amount, shipment.place, shipment.version) == (Decimal(31), "lost: nobody knows", 4)


def test_what_stands_for_nothing_today_still_has_its_version() -> None:
    store = MemoryEventStore()
    store.append("shipment-1", [First.PaidAndSent(amount=0, carrier=""), ORDERED_TODAY], expected=ANY)
    assert Dispatcher(store).load(Shipment, "1").version == 1


def test_stored_events_stay_as_they_were_written(store: MemoryEventStore) -> None:
    first, second, today, *_ = store.read_stream("shipment-1")
    assert first.data["customer"] == "7"
    assert [recorded.schema_version for recorded in (first, second, today)] == [1, 2, 3]


def test_a_version_changes_the_schema_and_the_first_one_does_not_show() -> None:
    assert event_type_of(Shipment.Ordered).schema["version"] == 3
    assert "version" not in event_type_of(Shipment.Paid).schema


def handled(signature: Any, store: MemoryEventStore) -> list[object]:
    seen: list[object] = []

    @subscription("shipment", group="all")
    def handle(event: signature) -> None:
        seen.extend(event if isinstance(event, list) else [event])

    source = MemorySource([MemoryArrival(recorded, "here") for recorded in store.read_stream("shipment-1")])
    report = deliver(handle, source)
    seen.append((report.handled, report.skipped))
    return seen


def test_a_handler_gets_what_its_classes_are_today(store: MemoryEventStore) -> None:
    orders = handled(Shipment.Ordered, store)
    assert [getattr(order, "customer_id", order) for order in orders] == [7, 8, 9, (3, 2)]


def test_a_handler_of_one_half_of_a_split_event_gets_that_half(store: MemoryEventStore) -> None:
    assert handled(Shipment.Sent, store) == [Shipment.Sent(carrier="sea"), (1, 4)]


def test_a_handler_of_both_halves_gets_both_in_one_record(store: MemoryEventStore) -> None:
    halves = [Shipment.Paid(amount=Decimal(31)), Shipment.Sent(carrier="sea")]
    assert handled(Shipment.Paid | Shipment.Sent, store) == [*halves, (1, 4)]
    assert handled(list[Shipment.Paid | Shipment.Sent], store) == [*halves, (1, 4)]


def test_a_handler_of_a_renamed_event_gets_it_under_its_old_name(store: MemoryEventStore) -> None:
    assert handled(Shipment.Lost, store) == [Shipment.Lost(why="nobody knows"), (1, 4)]


def test_a_function_may_change_the_values_and_leave_the_rest_to_later_steps() -> None:
    def halve(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "size": old["size"] // 2}

    @event(name="box.made", upcasters={1: [halve], 2: [Rename("size", to="width")]})
    class Made:
        width: int

    assert event_type_of(Made).events(1, {"size": 8}) == [Made(width=4)]


def test_a_default_leaves_a_field_alone_that_is_there() -> None:
    @event(name="box.made", upcasters={1: [Default("tags", []), Default("width", 1), Drop("never")]})
    class Made:
        width: int
        tags: list[str]

    one, other = (event_type_of(Made).events(1, {"width": 8})[0] for _ in range(2))
    assert (one.width, one.tags) == (8, [])
    assert one.tags is not other.tags


def test_a_newer_event_is_its_own_error() -> None:
    with pytest.raises(NewerEvent, match=r"stored in version 4, and the newest that this code knows is 3"):
        event_type_of(Shipment.Ordered).events(4, {})


def test_a_value_that_cannot_be_cast_is_refused_by_field() -> None:
    with pytest.raises(InvalidEventData, match="'Ada' does not look like") as refused:
        event_type_of(Shipment.Ordered).events(1, {"customer": "Ada", "amount": 1})
    assert refused.value.place == "shipment.ordered.customer_id"


@pytest.mark.parametrize("steps", [{2: [Drop("x")]}, {1: [Drop("x")], 3: [Drop("y")]}, {0: [Drop("x")]}])
def test_a_missing_upcaster_is_refused_when_the_class_is_made(steps: Any) -> None:
    with pytest.raises(DeclarationError, match="has no upcaster from version"):

        @event(name="box.made", upcasters=steps)
        class Made:
            width: int


def test_two_events_that_were_stored_under_one_name_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"are or were stored as 'box\.made'"):

        class Box(Aggregate):
            @event
            class Made:
                width: int

            @event(upcasters={1: [Retype("box.made")]})
            class Built:
                width: int


def test_a_cast_to_a_type_without_a_place_in_avro_is_refused() -> None:
    with pytest.raises(DeclarationError, match="width"):

        @event(name="box.made", upcasters={1: [Cast("width", complex)]})
        class Made:
            width: int
