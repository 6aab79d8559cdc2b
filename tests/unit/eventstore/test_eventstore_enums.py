"""An enum is stored by texts that its schema names: what could not be read back is seen before it is deployed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest

from eventstore import ANY, Aggregate, Dispatcher, MemoryEventStore, SqlEventStore, command, event
from eventstore.errors import InvalidEventData, UnsupportedFieldType
from eventstore.event_types import event_type_of
from eventstore.fields.upcasting import Cast, Default
from eventstore.schema_check import check_schemas
from eventstore.snapshots import Snapshots
from tests.rows import each_row

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


PLACES: dict[str, Wrap] = {
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


@each_row("place", PLACES)
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
    (finding,) = findings(PLACES[place](written), PLACES[place](today))
    assert (finding.place, finding.problem) == (f"box.made.x{place.strip()}", words)


@each_row("place", PLACES)
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
    assert findings(PLACES[place](written), PLACES[place](today)) == []


def test_the_remedy_is_the_member_or_the_cast() -> None:
    assert findings(Colour, Fewer)[0].remedy == "add the member back: BLUE = 'blue'"
    assert findings(str, Colour)[0].remedy == 'Cast("x", …)'


def come_back(written: Any, value: Any, today: Any, upcasters: Any = None) -> Any:
    store = MemoryEventStore()
    store.append("box-1", [box(written).Made(x=value)], expected=ANY)
    (recorded,) = store.read_stream("box-1")
    return box(today, upcasters).events_of(recorded)[0].x


def test_an_alias_is_stored_under_the_name_of_its_member_and_read_by_today_s() -> None:
    kind = event_type_of(box(Aliased).Made)
    assert kind.to_plain(kind.cls(x=Aliased.TOP)) == {"x": "HIGH"}
    assert come_back(Aliased, Aliased.TOP, Level) is Level.HIGH
    assert come_back(Before, Before.TOP, Aliased) is Aliased.HIGH


def test_a_cast_makes_texts_members_and_refuses_others() -> None:
    cast = {1: [Cast("x", Colour)]}
    assert findings(str, Colour) != []
    kept = [kind.registered for kind in box(str).event_types.values()]
    assert check_schemas([box(Colour, cast)], kept).passed
    assert come_back(str, "blue", Colour, cast) is Colour.BLUE
    with pytest.raises(InvalidEventData, match="'green' is none of 'red', 'blue'"):
        come_back(str, "green", Colour, cast)


def test_a_cast_makes_numbers_of_members_that_are_numbers_in_words() -> None:
    assert come_back(Size, Size.S, int, {1: [Cast("x", int)]}) == 38


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
