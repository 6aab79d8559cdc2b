"""Personal fields of older versions: what an erased person's event shows is what today's class declares."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from eventstore import ANY, Aggregate, Dispatcher, MasterKeys, MemoryEventStore, Personal, SqlEventStore, event
from eventstore import subscription as subscribe
from eventstore.errors import InvalidEventData, KeysMissing
from eventstore.event_types import event_type_of
from eventstore.fields.upcasting import Cast, Default, Drop, Rename
from eventstore.personal.marks import Sealed
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


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryEventStore()
        return
    with SqlEventStore(f"sqlite:///{tmp_path}/calls.db", keys=MasterKeys({"one": os.urandom(32)})) as opened:
        opened.create_tables()
        yield opened


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


def test_a_placeholder_that_was_changed_without_a_version_counts_at_once(store: Any) -> None:
    found = shown(recorded(store), {"phone": Annotated[str, Personal(erased="(unknown)")], "line": int})
    assert found == [{"phone": "(unknown)", "line": 2}]


class Zero(Aggregate, category="caller"):
    @event
    class Called:
        phone: Annotated[str, Personal(erased="0")]


def test_a_field_that_is_personal_no_more_shows_the_writers_placeholder_cast_as_values_are(store: Any) -> None:
    found = recorded(store, Zero.Called(phone="1"))
    assert shown(found, {"phone": str}) == [{"phone": "0"}]
    assert shown(found, {"phone": int}, {1: [Cast("phone", int)]}) == [{"phone": 0}]


def test_a_writers_placeholder_that_cannot_be_cast_is_refused_where_it_would_be_shown(store: Any) -> None:
    with pytest.raises(InvalidEventData, match="field phone cannot be cast"):
        shown(recorded(store), {"phone": int, "line": int}, {1: [Cast("phone", int)]})


def test_a_field_dropped_and_made_again_is_not_the_erased_one(store: Any) -> None:
    steps = {1: [Drop("phone"), Default("phone", 5)]}
    assert shown(recorded(store), {"phone": Annotated[int, Personal(erased=0)]}, steps) == [{"phone": 5}]


def test_a_function_sees_the_writers_placeholder_and_todays_is_shown(store: Any) -> None:
    seen: list[Any] = []

    def note(old: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(old))
        return {**old, "line": old["line"] + 1}

    fields = {"number": Annotated[int, Personal(erased=-1)], "line": int}
    assert shown(recorded(store), fields, {1: [note, *STEPS[1]]}) == [{"number": -1, "line": 3}]
    assert seen == [{"phone": "", "line": 2}]


def test_what_a_function_makes_of_a_placeholder_is_shown_where_the_field_is_personal_no_more(store: Any) -> None:
    def count(old: dict[str, Any]) -> dict[str, Any]:
        return {"phone": len(old["phone"])}

    assert shown(recorded(store), {"phone": int}, {1: [count]}) == [{"phone": 0}]


def sealed(store: SqlEventStore) -> Any:
    store.append("caller-7", [First.Called(phone="+41")], expected=ANY)
    (found,) = SqlEventStore(store.engine).read_stream("caller-7")
    assert type(found.data["phone"]) is Sealed
    return found


@pytest.fixture
def keyless(tmp_path: Path) -> Iterator[Any]:
    with SqlEventStore(f"sqlite:///{tmp_path}/calls.db", keys=MasterKeys({"one": os.urandom(32)})) as opened:
        opened.create_tables()
        yield sealed(opened)


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
