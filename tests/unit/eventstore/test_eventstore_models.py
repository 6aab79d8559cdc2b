"""Events may be pydantic models and msgspec structs, and so may the records they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from eventstore import Aggregate, Digits, Dispatcher, MemoryEventStore, command, event
from eventstore.errors import DeclarationError, InvalidEventData
from eventstore.event_types import event_type_of

Money = Annotated[Decimal, Digits(10, 2)]


class Address(pydantic.BaseModel):
    street: str
    number: int = 1


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass(frozen=True)
class Box:
    at: Point
    to: Address


class Visit(Aggregate):
    where: str = ""

    @event
    class Planned(pydantic.BaseModel, frozen=True):
        guest: Annotated[str, pydantic.Field(min_length=1)]
        price: Money
        home: Address
        notes: list[str] = pydantic.Field(default_factory=list)

    @event
    class Moved(msgspec.Struct, frozen=True, kw_only=True):
        to: Point
        price: Money | None = None
        boxes: list[Box] = []

    @command
    def plan(self, guest: str) -> None:
        self.emit(self.Planned(guest=guest, price=Decimal(3), home=Address(street="Main")))

    @command
    def move(self, x: int) -> None:
        self.emit(self.Moved(to=Point(x), boxes=[Box(Point(1), Address(street="Side", number=2))]))

    def on_planned(self, e: Planned) -> None:
        self.where = e.home.street

    def on_moved(self, e: Moved) -> None:
        self.where = f"{e.to.x}/{e.to.y}, {len(e.boxes)} boxes"


@pytest.fixture
def events() -> list[Any]:
    store = MemoryEventStore()
    dispatcher = Dispatcher(store)
    dispatcher.send("1", Visit.plan, "Ada")
    dispatcher.send("1", Visit.move, 4)
    assert dispatcher.load(Visit, "1").where == "4/0, 1 boxes"
    return [event for recorded in store.read_stream("visit-1") for event in Visit.events_of(recorded)]


def test_models_come_back_as_they_were(events: list[Any]) -> None:
    planned, moved = events
    assert planned == Visit.Planned(guest="Ada", price=Decimal(3), home=Address(street="Main"))
    assert moved == Visit.Moved(to=Point(4), boxes=[Box(Point(1), Address(street="Side", number=2))])


def test_a_model_has_the_schema_that_a_dataclass_would_have() -> None:
    class Visit(Aggregate):
        @event
        class Moved:
            to: Point
            price: Money | None = None
            boxes: list[Box]

    assert event_type_of(Visit.Moved).schema == event_type_of(globals()["Visit"].Moved).schema


def test_what_is_stored_is_not_validated_again() -> None:
    planned = event_type_of(Visit.Planned).from_plain({"guest": "", "price": Decimal(1), "home": {"street": "x"}})
    assert (planned.guest, planned.notes, planned.home) == ("", [], Address(street="x"))


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        (Visit.Planned.model_construct, {"guest": 3, "price": Decimal(1), "home": Address(street="x")}, "guest"),
        (Visit.Moved, {"to": Point(1), "price": Decimal("0.001")}, "price"),
        (Visit.Moved, {"to": Point("1")}, "to"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_field(kind: Callable[..., Any], values: Any, field: str) -> None:
    with pytest.raises(InvalidEventData) as refused:
        event_type_of(kind(**values)).encode(kind(**values))
    assert refused.value.place is not None
    assert refused.value.place.endswith(f".{field}")


@pytest.mark.parametrize("base", [pydantic.BaseModel, msgspec.Struct])
def test_a_model_that_may_be_changed_is_no_event(base: type) -> None:
    with pytest.raises(DeclarationError, match="is not frozen: its objects can be changed") as refused:

        @event(name="visit.ended")
        class Ended(base):
            by: str

    assert refused.value.remedy == f"declare it as class Ended({base.__name__}, frozen=True)"


def test_a_model_that_takes_fields_it_does_not_declare_is_refused_when_the_class_is_made():
    class Loose(pydantic.BaseModel, frozen=True, extra="allow"):
        street: str

    with pytest.raises(DeclarationError, match="Loose takes fields that it does not declare") as refused:
        event(name="visit.loose")(Loose)
    assert "extra='forbid'" in refused.value.remedy

    with pytest.raises(DeclarationError, match="Loose takes fields that it does not declare"):

        @event(name="visit.held")
        class Held:
            home: Loose


def test_a_model_of_a_subclass_is_refused_by_field():
    class Longer(Address):
        country: str

    class Deep(Point):
        z: int = 0

    planned = Visit.Planned(guest="Ann", price=Decimal(3), home=Longer(street="a", country="b"))
    with pytest.raises(InvalidEventData) as refused:
        event_type_of(planned).to_plain(planned)
    assert refused.value.place == "visit.planned.home"

    with pytest.raises(InvalidEventData) as refused:
        event_type_of(Visit.Moved).to_plain(Visit.Moved(to=Deep(1, 2, 3)))
    assert refused.value.place == "visit.moved.to"
