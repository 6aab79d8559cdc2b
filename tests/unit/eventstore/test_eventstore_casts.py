"""Casts and renames lose nothing, and events of older versions are read as of today, wherever they are read."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import pytest

from eventstore import ANY, Aggregate, Digits, Dispatcher, MemoryEventStore, event, subscription
from eventstore.errors import DeclarationError, InvalidEventData, SchemaError, UnsupportedFieldType
from eventstore.event_types import EventType, event_type_of
from eventstore.fields.conversions import cast_plain
from eventstore.fields.field_compilation import compile_type
from eventstore.fields.field_types import Compilation
from eventstore.fields.upcasting import Cast, Default, Drop, Rename, Retype
from eventstore.schema_check import check_schemas
from projections.spark.events.upcasting import Reading
from tests.errors import raises
from tests.rows import each_row
from tests.shipments import ORDERED_SECOND, ORDERED_TODAY, First, Shipment, ordered_first
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource

WIDE = Annotated[Decimal, Digits(38, 10)]
WIDER = Annotated[Decimal, Digits(38, 0)]


@dataclass(frozen=True)
class Point:
    x: int


def avro(hint: Any) -> Any:
    return compile_type(hint, "x", Compilation("test", {})).avro


@each_row(
    ("value", "to", "expected"),
    [
        (2**53, float, 2.0**53),
        (2**62, float, 2.0**62),
        (-(2**63), float, -(2.0**63)),
        (2**63 - 1, WIDE, Decimal(2**63 - 1)),
        (Decimal("1234567890123456789012345678"), WIDE, Decimal("1234567890123456789012345678")),
        ("1234567890123456789012345678.0123456789", WIDE, Decimal("1234567890123456789012345678.0123456789")),
        ("9" * 38, WIDER, Decimal(10**38 - 1)),
        ("0" * 5000 + "7", int, 7),
        ("1." + "0" * 50, WIDER, Decimal(1)),
        (True, int, 1),
        (3, float, 3.0),
        (3, Decimal, Decimal(3)),
        (-3, str, "-3"),
        (Decimal("0.0000"), str, "0.0000"),
        (Decimal("12.5000"), Annotated[Decimal, Digits(4, 1)], Decimal("12.5")),
        (dt.date(2024, 2, 29), dt.datetime, dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        ("+007", int, 7),
        ("-12.50", Decimal, Decimal("-12.5")),
        ("2024-02-29", dt.date, dt.date(2024, 2, 29)),
        ("0000000A-0000-0000-0000-000000000000", uuid.UUID, uuid.UUID("0000000a-0000-0000-0000-000000000000")),
        (uuid.UUID(int=1), str, "00000000-0000-0000-0000-000000000001"),
        (None, int, None),
        ("same", str, "same"),
        (3, int | None, 3),
    ],
)
def test_a_cast_says_the_same_in_another_type_to_the_last_digit(value: Any, to: Any, expected: Any) -> None:
    found = cast_plain(value, avro(to))
    assert (found, type(found)) == (expected, type(expected))


@each_row(
    ("value", "to"),
    [
        (2**53 + 1, float),
        (-(2**53) - 1, float),
        (2**63 - 1, float),
        (Decimal("1234567890123456789012345678.01234567891"), WIDE),
        ("1234567890123456789012345678.01234567891", WIDE),
        ("9" * 39, WIDER),
        (Decimal(10) ** 28, WIDE),
        ("9" * 5000, int),
        ("1.5", int),
        ("7\n", int),
        ("٣", int),
        (str(2**63), int),
        ("1e3", Decimal),
        ("0.00001", Decimal),
        (10**14, Decimal),
        (Decimal("12.55"), Annotated[Decimal, Digits(4, 1)]),
        ("2024-02-30", dt.date),
        ("0000-01-01", dt.date),
        ("not-a-uuid", uuid.UUID),
        (1.5, int),
        (1.5, str),
        ([], str),
    ],
)
def test_a_value_that_would_be_rounded_cut_or_guessed_is_not_cast(value: Any, to: Any) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        cast_plain(value, avro(to))


@pytest.mark.parametrize("to", [list[int], dict[str, int], Point, int | str, list[int] | None, Point | int | None])
def test_a_cast_to_what_holds_other_values_is_refused_when_the_class_is_made(to: Any) -> None:
    with pytest.raises(UnsupportedFieldType, match="casts field x to a list, map, record or union"):

        @event(name="box.made", upcasters={1: [Cast("x", to)]})
        class Made:
            x: to


class Before(Aggregate, category="box"):
    @event
    class Made:
        old: int
        new: int


def renamed(*changes: Any) -> type[Aggregate]:
    class After(Aggregate, category="box"):
        @event(upcasters={1: list(changes)})
        class Made:
            new: int

    return After


def kind(owner: Any) -> EventType:
    return event_type_of(owner.Made)


CLASH = "field old cannot be renamed to new: the event has a field of that name"


def test_a_rename_onto_a_field_that_exists_is_refused_when_an_event_is_read() -> None:
    store = MemoryEventStore()
    store.append("box-1", [Before.Made(old=1, new=2)], expected=ANY)
    (recorded,) = store.read_stream("box-1")
    with pytest.raises(InvalidEventData, match=CLASH) as refused:
        renamed(Rename("old", to="new")).events_of(recorded)
    assert refused.value.place == "box.made.new"


def test_schema_check_names_a_rename_onto_a_field_that_exists() -> None:
    (finding,) = check_schemas([renamed(Rename("old", to="new"))], [kind(Before).registered]).misfits
    assert (finding.place, finding.problem) == ("box.made.new", CLASH)


def test_spark_reads_no_event_with_a_rename_onto_a_field_that_exists() -> None:
    reading = Reading.of(kind(Before).registered, kind(renamed(Rename("old", to="new"))))
    assert reading.problem == CLASH


@pytest.mark.parametrize(
    "changes",
    [
        [Drop("new"), Rename("old", to="new")],
        [Rename("new", to="other"), Rename("old", to="new")],
        [Rename("old", to="old"), Rename("new", to="new")],
        [Rename("absent", to="new")],
    ],
)
def test_a_rename_to_a_name_that_is_free_passes(changes: Any) -> None:
    after = renamed(*changes)
    assert kind(after).events(1, {"old": 1, "new": 2})
    assert check_schemas([after], [kind(Before).registered]).passed


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


HALVES = [Shipment.Paid(amount=Decimal(31)), Shipment.Sent(carrier="sea")]


@each_row(
    ("signature", "expected"),
    [
        (Shipment.Sent, [HALVES[1], (1, 4)]),
        (Shipment.Paid | Shipment.Sent, [*HALVES, (1, 4)]),
        (list[Shipment.Paid | Shipment.Sent], [*HALVES, (1, 4)]),
        (Shipment.Lost, [Shipment.Lost(why="nobody knows"), (1, 4)]),
    ],
)
def test_a_handler_gets_its_half_of_a_split_event_or_both_and_a_renamed_one(store, signature, expected):
    assert handled(signature, store) == expected


def test_a_handler_gets_what_its_classes_are_today(store: MemoryEventStore) -> None:
    orders = handled(Shipment.Ordered, store)
    assert [getattr(order, "customer_id", order) for order in orders] == [7, 8, 9, (3, 2)]


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
    with raises(
        SchemaError, code="newer-event", match=r"stored in version 4, and the newest that this code knows is 3"
    ):
        event_type_of(Shipment.Ordered).events(4, {})


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
