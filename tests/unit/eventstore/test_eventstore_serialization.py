"""Every field type goes through Avro and comes back as it was."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, NewType
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Aggregate, Dispatcher, MemoryEventStore, command
from eventstore.errors import DeclarationError, InvalidEventData, NotFramedAvro, UnknownSchema, UnsupportedFieldType
from eventstore.event_types import EventType, event, event_type_of
from eventstore.fields.field_types import Digits
from eventstore.fields.serialization import AvroDecoder
from eventstore.schema_registry import RegisteredSchema, unknown_schema
from tests.rows import each_row

CustomerId = NewType("CustomerId", int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Address:
    street: str
    colour: Colour
    since: datetime | None = None


@event(name="test.everything")
class Everything:
    text: str
    whole: int
    real: float
    flag: bool
    raw: bytes
    money: Decimal
    exact: Annotated[Decimal, Digits(6, 2)]
    moment: datetime
    day: date
    key: UUID
    colour: Colour
    level: Level
    customer: CustomerId
    maybe: str | None
    maybe_money: Decimal | None
    tags: list[str]
    moments: list[datetime]
    prices: dict[str, Decimal]
    home: Address
    others: list[Address]
    work: Address | None


def money(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    bound = Decimal(10) ** (digits - places) - Decimal(1).scaleb(-places)
    return st.decimals(-bound, bound, places=places)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
moments = st.datetimes(
    datetime(1700, 1, 1),
    datetime(2500, 1, 1),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))]),
)
addresses = st.builds(Address, street=texts, colour=st.sampled_from(Colour), since=st.none() | moments)
everything = st.builds(
    Everything,
    text=texts,
    whole=st.integers(-(2**63), 2**63 - 1),
    real=st.floats(allow_nan=False),
    flag=st.booleans(),
    raw=st.binary(),
    money=money(18, 4),
    exact=money(6, 2),
    moment=moments,
    day=st.dates(),
    key=st.uuids(),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    customer=st.integers(0, 2**31),
    maybe=st.none() | texts,
    maybe_money=st.none() | money(18, 4),
    tags=st.lists(texts, max_size=3),
    moments=st.lists(moments, max_size=3),
    prices=st.dictionaries(texts, money(18, 4), max_size=3),
    home=addresses,
    others=st.lists(addresses, max_size=2),
    work=st.none() | addresses,
)


def decoder_of(*kinds: EventType) -> AvroDecoder:
    known = {kind.schema_id: kind.registered for kind in kinds}

    def lookup(schema_id: int) -> RegisteredSchema:
        if schema_id not in known:
            raise unknown_schema(schema_id, "test")
        return known[schema_id]

    return AvroDecoder(lookup)


@given(everything)
def test_every_field_type_comes_back_as_it_was_in_the_confluent_frame(sent: Any) -> None:
    kind = event_type_of(sent)
    framed = kind.encode(sent)
    schema, values = decoder_of(kind).decode(framed)
    assert (schema, kind.from_plain(values)) == (kind.registered, sent)
    assert struct.unpack(">bI", framed[:5]) == (0, kind.schema_id)


def test_each_type_has_its_avro_form() -> None:
    fields = {field["name"]: field["type"] for field in _type(Everything).schema["fields"]}
    assert fields["whole"] == "long"
    assert fields["money"] == {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}
    assert (fields["exact"]["precision"], fields["exact"]["scale"]) == (6, 2)
    assert fields["moment"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert fields["key"] == {"type": "string", "logicalType": "uuid"}
    assert fields["colour"] == {"type": "string", "enum": {"RED": "red", "BLUE": "blue"}}
    assert fields["level"] == {"type": "string", "enum": {"LOW": "LOW", "HIGH": "HIGH"}}
    assert (fields["maybe"], fields["customer"]) == (["null", "string"], "long")
    assert fields["home"]["name"] == "Address"
    assert fields["others"] == {"type": "array", "items": "Address"}


def _type(cls: Any) -> EventType:
    found = cls.__factfold_event__
    assert isinstance(found, EventType)
    return found


def _example(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "text": "",
        "whole": 1,
        "real": 1.5,
        "flag": True,
        "raw": b"",
        "money": Decimal(1),
        "exact": Decimal(1),
        "moment": datetime(2026, 1, 1, tzinfo=UTC),
        "day": date(2026, 1, 1),
        "key": UUID(int=1),
        "colour": Colour.BLUE,
        "level": Level.HIGH,
        "customer": CustomerId(1),
        "maybe": None,
        "maybe_money": None,
        "tags": [],
        "moments": [],
        "prices": {},
        "home": Address("Main", Colour.RED),
        "others": [],
        "work": None,
    }
    return Everything(**{**values, **changes})


@each_row(
    ("field", "value"),
    [
        ("text", 3),
        ("text", "\ud800"),
        ("text", None),
        ("whole", "3"),
        ("whole", 2**63),
        ("real", "x"),
        ("whole", 1.5),
        ("real", "1.5"),
        ("flag", "no"),
        ("text", b"bytes"),
        ("raw", "text"),
        ("money", Decimal("1.00001")),
        ("money", Decimal(10) ** 14),
        ("money", Decimal("NaN")),
        ("money", Decimal("Infinity")),
        ("money", 1.5),
        ("exact", Decimal("0.001")),
        ("moment", datetime(2026, 1, 1)),
        ("moment", "2026-01-01"),
        ("moments", [datetime(2026, 1, 1)]),
        ("day", "2026-01-01"),
        ("day", datetime(2026, 1, 1, tzinfo=UTC)),
        ("key", "no-uuid"),
        ("colour", "red"),
        ("level", 7),
        ("maybe", 3),
        ("tags", [1]),
        ("tags", None),
        ("prices", {"a": "b"}),
        ("home", None),
        ("home", Address("Main", "red")),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_field(field: str, value: Any) -> None:
    sent = _example(**{field: value})
    with pytest.raises(InvalidEventData) as refused:
        event_type_of(sent).encode(sent)
    assert refused.value.place == f"test.everything.{field}"


@event(name="test.grown")
class Before:
    number: int


def _grown() -> EventType:
    @event(name="test.grown")
    class After:
        number: int
        note: str = "none"
        colour: Colour = Colour.RED

    return _type(After)


def test_fields_the_writer_did_not_know_take_their_defaults() -> None:
    values = decoder_of(_type(Before)).decode(_type(Before).encode(Before(number=1)))[1]
    grown = _grown().from_plain(values)
    assert (grown.number, grown.note, grown.colour) == (1, "none", Colour.RED)


def test_a_new_field_without_a_default_is_named() -> None:
    with pytest.raises(InvalidEventData, match="no value for field text"):
        _type(Everything).from_plain({})


def test_fields_the_reader_no_longer_has_are_left_out() -> None:
    assert _type(Before).from_plain({"number": 1, "gone": True}) == Before(number=1)


@pytest.mark.parametrize(
    "framed",
    [b"", b"\x00\x00", b"\x01\x00\x00\x00\x01x", b'{"json": true}'],
    ids=["empty", "cut", "magic", "json"],
)
def test_bytes_without_the_frame_are_refused(framed: bytes) -> None:
    with pytest.raises(NotFramedAvro, match="frame"):
        decoder_of().decode(framed)


@given(st.data())
def test_a_cut_or_lengthened_body_is_refused(data: st.DataObject) -> None:
    framed = _type(Everything).encode(_example(text="some text", tags=["a", "b"]))
    cut = data.draw(st.integers(5, len(framed) - 1))
    broken = data.draw(st.sampled_from([framed[:cut], framed + b"\x00"]))
    with pytest.raises(NotFramedAvro):
        decoder_of(_type(Everything)).decode(broken)


def test_an_unknown_schema_id_is_its_own_error() -> None:
    with pytest.raises(UnknownSchema, match="66051"):
        decoder_of().decode(b"\x00\x00\x01\x02\x03body")


@dataclass
class Tree:
    children: list[Tree]


def test_a_record_that_contains_itself_is_refused() -> None:
    with pytest.raises(UnsupportedFieldType, match="contains itself"):

        @event(name="test.tree")
        class Planted:
            root: Tree


def test_digits_out_of_range_are_refused() -> None:
    with pytest.raises(UnsupportedFieldType, match="precision"):

        @event(name="test.digits")
        class Counted:
            number: Annotated[Decimal, Digits(39, 2)]


# ---- Events may be pydantic models and msgspec structs, and so may the records they hold


Money = Annotated[Decimal, Digits(10, 2)]


class AddressModel(pydantic.BaseModel):
    street: str
    number: int = 1


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass(frozen=True)
class Box:
    at: Point
    to: AddressModel


class Visit(Aggregate):
    where: str = ""

    @event
    class Planned(pydantic.BaseModel, frozen=True):
        guest: Annotated[str, pydantic.Field(min_length=1)]
        price: Money
        home: AddressModel
        notes: list[str] = pydantic.Field(default_factory=list)

    @event
    class Moved(msgspec.Struct, frozen=True, kw_only=True):
        to: Point
        price: Money | None = None
        boxes: list[Box] = []

    @command
    def plan(self, guest: str) -> None:
        self.emit(self.Planned(guest=guest, price=Decimal(3), home=AddressModel(street="Main")))

    @command
    def move(self, x: int) -> None:
        self.emit(self.Moved(to=Point(x), boxes=[Box(Point(1), AddressModel(street="Side", number=2))]))

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
    assert planned == Visit.Planned(guest="Ada", price=Decimal(3), home=AddressModel(street="Main"))
    assert moved == Visit.Moved(to=Point(4), boxes=[Box(Point(1), AddressModel(street="Side", number=2))])


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
    assert (planned.guest, planned.notes, planned.home) == ("", [], AddressModel(street="x"))


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
