"""A value that would be rounded, cut or misread is refused by field; every other one comes back as it was."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NewType

import numpy as np
import pandas as pd
import pytest

from eventstore import ANY, Aggregate, Digits, Dispatcher, MemoryEventStore, Personal, SqlEventStore, command, event
from eventstore.errors import InvalidEventData, InvalidExport, UnsupportedFieldType
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.fields.upcasting import Cast, Default
from eventstore.schema_check import check_schemas
from eventstore.snapshots import Snapshots, StateShape
from eventstore.store import EventStore
from tests.rows import each_row

Name = NewType("Name", str)


class Text(StrEnum):
    ODD = "o\0dd"


@dataclass(frozen=True)
class Address:
    street: str
    labels: list[str]


@dataclass(frozen=True)
class Shop(Address):
    """An address with more than one has."""

    hours: str


@dataclass(frozen=True)
class Alike:
    street: str
    labels: list[str]


class Note(Aggregate):
    @event
    class Written:
        text: str = ""
        maybe: str | None = None
        name: Name = Name("")
        noted: Annotated[str, "a note"] = ""
        texts: list[str] = ()  # type: ignore[assignment]
        lists: list[list[str]] = ()  # type: ignore[assignment]
        values: dict[str, str] = None  # type: ignore[assignment]
        address: Address | None = None
        addresses: dict[str, Address] = None  # type: ignore[assignment]
        either: str | int = 0
        eithers: list[bool | str] = ()  # type: ignore[assignment]
        secret: Annotated[str, Personal(erased="")] = ""

        def __post_init__(self) -> None:
            for name in ("values", "addresses"):
                object.__setattr__(self, name, getattr(self, name) or {})

    @command
    def write(self, text: str) -> None:
        self.emit(self.Written(text=text))


class Plain(Aggregate):
    @event
    class Written:
        text: str
        texts: list[str]
        values: dict[str, str]
        address: Address | None
        eithers: list[bool | str]


@pytest.fixture
def store() -> EventStore:
    return MemoryEventStore()


NUL = [
    ("text", "a\0b"),
    ("text", "\0"),
    ("text", Text.ODD),
    ("maybe", "\0"),
    ("name", "\0"),
    ("noted", "\0"),
    ("texts", ["a", "\0"]),
    ("lists", [[], ["\0"]]),
    ("values", {"a": "\0"}),
    ("values", {"\0": "a"}),
    ("address", Address("\0", [])),
    ("address", Address("a", ["\0"])),
    ("addresses", {"home": Address("\0", [])}),
    ("addresses", {"\0": Address("a", [])}),
    ("either", "\0"),
    ("eithers", [True, "\0"]),
    ("secret", "\0"),
]


@each_row(("field", "value"), NUL)
def test_a_text_with_nul_is_refused_by_field_and_nothing_of_its_append_is_stored(store, field, value):
    events = [Note.Written(text="fine"), Note.Written(**{field: value})]
    with pytest.raises(InvalidEventData) as refused:
        store.append("note-1", events, expected=ANY)
    assert refused.value.place == f"note.written.{field}"
    assert list(store.read_stream("note-1")) == []


def test_the_error_of_a_text_with_nul_says_where_it_is() -> None:
    with pytest.raises(InvalidEventData, match=r"'a\\x00b' has the character NUL at place 1"):
        event_type_of(Note.Written).to_plain(Note.Written(text="a\0b"))


@pytest.mark.parametrize("field", ["text", "texts", "values", "address", "eithers"])
def test_an_import_refuses_a_text_with_nul_and_stores_nothing(tmp_path: Path, field: str) -> None:
    odd: dict[str, Any] = {
        "text": "a\0b", "texts": ["\0"], "values": {"\0": ""}, "address": {"street": "\0", "labels": []},
        "eithers": ["\0"],
    }  # fmt: skip
    kind, file = event_type_of(Plain.Written), tmp_path / "events.jsonl"
    event = Plain.Written(text="", texts=[], values={}, address=None, eithers=[])
    with SqlEventStore(f"sqlite:///{tmp_path}/source.db") as source:
        source.create_tables()
        source.append("plain-1", [event], expected=ANY)
        source.export_file(file)
    with_nul = kind.codec.encode({**kind.to_plain(event), field: odd[field]})
    lines = file.read_text().replace(b64encode(kind.encode(event)).decode(), b64encode(with_nul).decode())
    file.write_text(lines)
    with SqlEventStore(f"sqlite:///{tmp_path}/target.db") as target:
        target.create_tables()
        with pytest.raises(InvalidExport, match=rf"a text in plain\.written\.{field} has the character NUL") as refused:
            target.import_file(file)
        assert refused.value.place is not None
        assert "line or row" in refused.value.place
        assert list(target.read_stream("plain-1")) == []


def come_back(hint: Any, value: Any) -> Any:
    made = event(name="value.kept")(type("Kept", (), {"__annotations__": {"x": hint}, "__module__": __name__}))
    kind = event_type_of(made)
    _, values = AvroDecoder({kind.schema_id: kind.registered}.__getitem__).decode(kind.encode(made(x=value)))
    assert values == kind.to_plain(made(x=value))
    return kind.from_plain(values).x


PLACES: list[Any] = [
    (lambda hint: hint, lambda value: value),
    (lambda hint: hint | None, lambda value: value),
    (lambda hint: list[hint], lambda value: [value]),
    (lambda hint: dict[str, hint], lambda value: {"k": value}),
]
EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))
FINE = [
    (float, 2**53),
    (float, -(2**53)),
    (float, 2**60),
    (float, np.float32(1.5)),
    (float, math.inf),
    (float, True),
    (float, Decimal("0.5")),
    (Decimal, Decimal("10.00") * Decimal("0.0500")),
    (Decimal, Decimal("0E-30")),
    (Decimal, Decimal("1E+13")),
    (Decimal, Decimal("99999999999999.99990000")),
    (Annotated[Decimal, Digits(38, 10)], Decimal("1234567890123456789012345678.0123456789")),
    (Annotated[Decimal, Digits(38, 38)], Decimal("0.12345678901234567890123456789012345678")),
    (Annotated[Decimal, Digits(38, 0)], Decimal(10**38 - 1)),
    (Annotated[Decimal, Digits(2, 1)], Decimal("1.5") * Decimal("1.0")),
    (datetime, datetime(1, 1, 1, tzinfo=UTC)),
    (datetime, datetime(1, 1, 1, tzinfo=WEST)),
    (datetime, datetime.max.replace(tzinfo=UTC)),
    (datetime, datetime.max.replace(tzinfo=EAST)),
    (datetime, pd.Timestamp("2026-01-01 00:00:00.123456", tz="Europe/Berlin")),
]
ROUNDED = [
    (float, 2**53 + 1),
    (float, -(2**53) - 1),
    (float, 2**63 - 1),
    (float, 10**400),
    (float, np.int64(2**53 + 1)),
    (float, Decimal("0.1")),
    (float, Fraction(1, 3)),
    (Decimal, Decimal("0.00001")),
    (Decimal, Decimal("1E+14")),
    (Decimal, Decimal("99999999999999.99991")),
    (Annotated[Decimal, Digits(38, 10)], Decimal("1234567890123456789012345678.01234567891")),
    (Annotated[Decimal, Digits(38, 0)], Decimal(10**38)),
    (Decimal, Decimal("-Infinity")),
    (Decimal, Decimal("NaN")),
    (Decimal, Decimal("sNaN")),
    (datetime, datetime(1, 1, 1, tzinfo=EAST)),
    (datetime, datetime.max.replace(tzinfo=WEST)),
    (datetime, pd.Timestamp("2026-01-01 00:00:00.123456789", tz="UTC")),
    (datetime, pd.NaT),
    (Address, Shop("a", [], "9-17")),
    (Address, Alike("a", [])),
    (Address | int, Shop("a", [], "9-17")),
    (list[int], b"ab"),
    (list[int], {1: 2}),
    (list[int], {1, 2}),
    (list[str], "abc"),
    (list[str], {"a": 1}),
    (list[str], b"abc"),
]


@each_row("place", range(4))
@each_row(("hint", "value"), FINE)
def test_a_value_that_fits_comes_back_equal(hint: Any, value: Any, place: int) -> None:
    wrapped, wrap = PLACES[place]
    assert come_back(wrapped(hint), wrap(value)) == wrap(value)


@each_row("place", range(4))
@each_row(("hint", "value"), ROUNDED)
def test_a_value_that_would_be_rounded_cut_or_taken_apart_is_refused_by_field(hint, value, place):
    wrapped, wrap = PLACES[place]
    with pytest.raises(InvalidEventData) as refused:
        come_back(wrapped(hint), wrap(value))
    assert refused.value.place == "value.kept.x"


def test_a_snapshot_refuses_what_an_event_refuses() -> None:
    class Sum(Aggregate):
        total: float = 0.0

    state = Sum("1")
    state.total = 2**53 + 1
    with pytest.raises(InvalidEventData) as refused:
        StateShape(Sum).encode(state)
    assert refused.value.place == f"{Sum.__qualname__}.total"


# ---- An enum is stored by texts that its schema names: what could not be read back is seen before it is deployed


Colour = Enum("Colour", {"RED": "red", "BLUE": "blue"})
More = Enum("More", {"RED": "red", "BLUE": "blue", "GREEN": "green"})
Fewer = Enum("Fewer", {"RED": "red"})
Changed = Enum("Changed", {"RED": "rouge", "BLUE": "blue"})
Swapped = Enum("Swapped", {"RED": "blue", "BLUE": "red"})
Renamed = Enum("Renamed", {"ROUGE": "red", "BLUE": "blue"})
ByName = Enum("ByName", {"RED": "red", "BLUE": "blue", "NONE": 0})
Level = Enum("Level", {"LOW": 1, "HIGH": 2})
Renumbered = Enum("Renumbered", {"LOW": 10, "HIGH": 20})
HighOnly = Enum("HighOnly", {"HIGH": 2})
Aliased = Enum("Aliased", {"LOW": 1, "HIGH": 2, "TOP": 2})
Merged = Enum("Merged", {"LOW": 1, "HIGH": 1})
Before = Enum("Before", {"TOP": 2})
Size = Enum("Size", {"S": "38"})
Nul = Enum("Nul", {"NUL": "\0"})
OtherColour = StrEnum("OtherColour", {"RED": "red"})
Own = StrEnum("Own", {"RED": "red"})
One = IntEnum("One", {"LOW": 1})

Wrap = Callable[[Any], Any]


def in_record(hint: Any) -> Any:
    return make_dataclass("Painted", [("colour", hint)], frozen=True)


ENUM_PLACES: dict[str, Wrap] = {
    "": lambda hint: hint,
    " ": lambda hint: hint | None,
    "[]": lambda hint: list[hint],
    "{}": lambda hint: dict[str, hint],
    ".colour": in_record,
    "[].colour": lambda hint: list[in_record(hint)],  # type: ignore[misc]
    "  ": lambda hint: hint | int,
    "[] ": lambda hint: list[hint | bool | None],
}


def box(hint: Any, upcasters: Any = None) -> Any:
    made = event(upcasters=upcasters or {})(
        type("Made", (), {"__annotations__": {"x": hint}, "__module__": __name__, "__qualname__": "Made"})
    )
    return type("Box", (Aggregate,), {"Made": made, "__module__": __name__}, category="box")


def findings(written: Any, today: Any) -> list[Any]:
    kept = [kind.registered for kind in box(written).event_types.values()]
    return list(check_schemas([box(today)], kept).misfits)


@each_row("place", ENUM_PLACES)
@each_row(
    ("written", "today", "words"),
    [
        (Colour, Fewer, "it may be 'blue' there, which no member of Fewer is today"),
        (Colour, Changed, "it may be 'red' there, which no member of Changed is today"),
        (Colour, Swapped, "'red' is RED there, and BLUE today"),
        (Colour, ByName, "it may be 'red' there, which no member of ByName is today"),
        (ByName, Colour, "it may be 'RED' there, which no member of Colour is today"),
        (Level, HighOnly, "it may be 'LOW' there, which no member of HighOnly is today"),
        (str, Colour, "it is string there, and enum today"),
    ],
)
def test_schema_check_names_a_text_that_no_member_or_another_one_is_read_from(place, written, today, words):
    (finding,) = findings(ENUM_PLACES[place](written), ENUM_PLACES[place](today))
    assert (finding.place, finding.problem) == (f"box.made.x{place.strip()}", words)


@each_row("place", ENUM_PLACES)
@each_row(
    ("written", "today"),
    [
        (Colour, More),
        (Colour, Renamed),
        (Fewer, Colour),
        (Level, Renumbered),
        (Level, Aliased),
        (Level, Merged),
        (Colour, str),
        (Level, str),
    ],
)
def test_what_every_text_can_be_read_from_passes(place: str, written: Any, today: Any) -> None:
    assert findings(ENUM_PLACES[place](written), ENUM_PLACES[place](today)) == []


def test_the_remedy_is_the_member_or_the_cast() -> None:
    assert findings(Colour, Fewer)[0].remedy == "add the member back: BLUE = 'blue'"
    assert findings(str, Colour)[0].remedy == 'Cast("x", …)'


def recorded_and_read(written: Any, value: Any, today: Any, upcasters: Any = None) -> Any:
    store = MemoryEventStore()
    store.append("box-1", [box(written).Made(x=value)], expected=ANY)
    (recorded,) = store.read_stream("box-1")
    return box(today, upcasters).events_of(recorded)[0].x


def test_an_alias_is_stored_under_the_name_of_its_member_and_read_by_today_s() -> None:
    kind = event_type_of(box(Aliased).Made)
    assert kind.to_plain(kind.cls(x=Aliased.TOP)) == {"x": "HIGH"}
    assert recorded_and_read(Aliased, Aliased.TOP, Level) is Level.HIGH
    assert recorded_and_read(Before, Before.TOP, Aliased) is Aliased.HIGH


def test_a_cast_makes_texts_members_and_refuses_others() -> None:
    cast = {1: [Cast("x", Colour)]}
    assert findings(str, Colour) != []
    kept = [kind.registered for kind in box(str).event_types.values()]
    assert check_schemas([box(Colour, cast)], kept).passed
    assert recorded_and_read(str, "blue", Colour, cast) is Colour.BLUE
    with pytest.raises(InvalidEventData, match="'green' is none of 'red', 'blue'"):
        recorded_and_read(str, "green", Colour, cast)


def test_a_cast_makes_numbers_of_members_that_are_numbers_in_words() -> None:
    assert recorded_and_read(Size, Size.S, int, {1: [Cast("x", int)]}) == 38


@pytest.mark.parametrize(("text", "passed"), [("red", True), ("green", False)])
def test_a_default_that_is_a_text_is_checked_against_the_members(text: str, passed: bool) -> None:
    @event(name="box.made")
    class Before:
        pass

    made = box(Colour, {1: [Default("x", text)]})
    assert check_schemas([made], [event_type_of(Before).registered]).passed is passed


@each_row(
    ("enum", "value"), [(One, 1), *((Own, value) for value in ("red", OtherColour.RED, More.RED, Level.LOW, None))]
)
def test_what_only_equals_a_member_is_refused(enum: Any, value: Any) -> None:
    kind = event_type_of(box(enum).Made)
    with pytest.raises(InvalidEventData):
        kind.encode(kind.cls(x=value))


def test_a_member_with_nul_in_its_text_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(UnsupportedFieldType, match="NUL"):
        box(Nul)


def painted(colours: type[Enum]) -> type[Aggregate]:
    """An aggregate whose state has an enum, which its event does not."""

    class Wall(Aggregate):
        colour: colours | None = None  # type: ignore[valid-type]
        used: list[colours] = ()  # type: ignore[valid-type,assignment]

        @event
        class Painted:
            number: int

        @command
        def paint(self, number: int) -> None:
            self.emit(self.Painted(number=number))

        def on_painted(self, e: Painted) -> None:
            self.colour = list(colours)[e.number % len(colours)]
            self.used = [*self.used, self.colour]

    return Wall


@pytest.mark.parametrize("today", [Fewer, Changed, Swapped, ByName, More, Renamed], ids=lambda today: today.__name__)
def test_a_state_with_an_enum_is_from_its_snapshot_what_it_is_from_its_events(today: Any, tmp_path: Path) -> None:
    with SqlEventStore(f"sqlite:///{tmp_path}/walls.db") as store:
        store.create_tables()
        before, after = painted(Colour), painted(today)
        for number in range(2):
            Dispatcher(store, snapshots=Snapshots(store, every=1)).send("1", before.paint, number)
        assert store.snapshot("wall-1") is not None
        loaded = Dispatcher(store, snapshots=Snapshots(store, every=1)).load(after, "1")
        assert loaded.state() == Dispatcher(store).load(after, "1").state()
        assert all(type(colour) is today for colour in [loaded.colour, *loaded.used])
