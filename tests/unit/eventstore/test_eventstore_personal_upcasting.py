"""Personal fields of older versions: what an erased person's event shows is what today's class declares."""

from __future__ import annotations

import copy
import pickle
from typing import Annotated, Any

import pytest

from eventstore import ANY, Aggregate, Dispatcher, Personal, SqlEventStore, event
from eventstore import subscription as subscribe
from eventstore.errors import InvalidEventData, KeysMissing
from eventstore.event_types import event_type_of
from eventstore.fields.upcasting import Cast, Default, Drop, Rename
from eventstore.personal.sealing import Sealed
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource


class First(Aggregate, category="caller"):
    @event
    class Called:
        phone: Annotated[str, Personal(erased="")]
        line: int = 1


STEPS = {1: [Cast("phone", int), Rename("phone", to="number")]}


class Caller(Aggregate):
    number: int | None = None

    @event(upcasters=STEPS)
    class Called:
        number: Annotated[int, Personal(erased=-1)]
        line: int = 1

    def on_called(self, e: Called) -> None:
        self.number = e.number


@pytest.fixture
def store(either_store: Any) -> Any:
    return either_store


def recorded(store: Any, event: object = First.Called(phone="+41", line=2), *, erased: bool = True) -> Any:
    store.append("caller-7", [event], expected=ANY)
    if erased:
        store.erase("7")
    (found,) = store.read_stream("caller-7")
    return found


def today(fields: dict[str, Any], steps: dict[int, Any] | None = None) -> Any:
    """An event class of fields that is today's `caller.called`."""
    made = event(name="caller.called", upcasters=steps or {})
    return event_type_of(made(type("Called", (), {"__annotations__": fields})))


def shown(found: Any, fields: dict[str, Any], steps: dict[int, Any] | None = None) -> list[Any]:
    return [vars(one) for one in today(fields, steps).events(found.schema_version, found.data)]


def test_an_erased_value_that_could_not_be_cast_shows_todays_placeholder(store: Any) -> None:
    assert Caller.events_of(recorded(store, erased=False)) == [Caller.Called(number=41, line=2)]
    store.erase("7")
    assert Dispatcher(store).load(Caller, "7").number == -1


def test_a_recorded_event_shows_what_its_writer_declared(store: Any) -> None:
    found = recorded(store)
    assert found.data == {"phone": "", "line": 2}
    assert type(found.data["phone"]) is str
    for same in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert Caller.events_of(same) == [Caller.Called(number=-1, line=2)]


class Zero(Aggregate, category="caller"):
    @event
    class Called:
        phone: Annotated[str, Personal(erased="0")]


def count(old: dict[str, Any]) -> dict[str, Any]:
    return {"phone": len(old["phone"])}


FIRST, ZERO = First.Called(phone="+41", line=2), Zero.Called(phone="1")
SHOWN: dict[str, tuple[object, dict[str, Any], dict[int, Any], dict[str, Any]]] = {
    "a placeholder that was changed without a version counts at once": (
        FIRST, {"phone": Annotated[str, Personal(erased="(unknown)")], "line": int}, {},
        {"phone": "(unknown)", "line": 2}),
    "a field that is personal no more shows the writer's": (ZERO, {"phone": str}, {}, {"phone": "0"}),
    "and as values are cast": (ZERO, {"phone": int}, {1: [Cast("phone", int)]}, {"phone": 0}),
    "and what a function makes of it": (FIRST, {"phone": int}, {1: [count]}, {"phone": 0}),
    "a field dropped and made again is not the erased one": (
        FIRST, {"phone": Annotated[int, Personal(erased=0)]}, {1: [Drop("phone"), Default("phone", 5)]}, {"phone": 5}),
}  # fmt: skip


@pytest.mark.parametrize("what", SHOWN)
def test_an_erased_event_shows_what_today_s_class_declares(store: Any, what: str) -> None:
    written, fields, steps, expected = SHOWN[what]
    assert shown(recorded(store, written), fields, steps) == [expected]


def test_a_writers_placeholder_that_cannot_be_cast_is_refused_where_it_would_be_shown(store: Any) -> None:
    with pytest.raises(InvalidEventData, match="field phone cannot be cast"):
        shown(recorded(store), {"phone": int, "line": int}, {1: [Cast("phone", int)]})


def test_a_function_sees_the_writers_placeholder_and_todays_is_shown(store: Any) -> None:
    seen: list[Any] = []

    def note(old: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(old))
        return {**old, "line": old["line"] + 1}

    fields = {"number": Annotated[int, Personal(erased=-1)], "line": int}
    assert shown(recorded(store), fields, {1: [note, *STEPS[1]]}) == [{"number": -1, "line": 3}]
    assert seen == [{"phone": "", "line": 2}]


@pytest.fixture
def keyless(keyed_store: SqlEventStore) -> Any:
    keyed_store.append("caller-7", [First.Called(phone="+41")], expected=ANY)
    (found,) = SqlEventStore(keyed_store.engine).read_stream("caller-7")
    assert type(found.data["phone"]) is Sealed
    return found


def test_a_subscription_without_keys_stops_and_makes_no_dead_letter_of_a_sealed_value(keyless: Any) -> None:
    @subscribe("caller", group="all")
    def note(event: Caller.Called) -> None:
        raise AssertionError

    source = MemorySource([MemoryArrival(keyless, "here")])
    with pytest.raises(KeysMissing, match="no keys here to open it"):
        deliver(note, source)
    assert (source.dead, source.acknowledged) == ([], [])


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"phone": str, "line": int}, {}),
        ({"phone": int, "line": int}, {1: [Cast("phone", int)]}),
        ({"line": int}, {1: [lambda old: {"line": len(old["phone"])}]}),
    ],
)
def test_a_sealed_value_is_handed_to_nobody(keyless: Any, fields: Any, steps: Any) -> None:
    with pytest.raises(KeysMissing, match="no keys here to open it") as refused:
        shown(keyless, fields, steps)
    assert refused.value.place == "caller.called.phone"


def test_who_needs_no_personal_field_needs_no_keys(keyless: Any) -> None:
    assert shown(keyless, {"line": int}, {1: [Cast("phone", int), Drop("phone")]}) == [{"line": 1}]
