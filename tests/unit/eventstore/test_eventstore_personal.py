"""What a personal field holds is told by no error, with all its causes, by no log and by no dead letter."""

from __future__ import annotations

import copy
import os
import pickle
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from eventstore import (
    ANY,
    Aggregate,
    Digits,
    Dispatcher,
    MasterKeys,
    MemoryEventStore,
    NewEvent,
    Personal,
    SqlEventStore,
    SqlKeyStore,
    Subscriber,
    command,
    event,
    subscription,
)
from eventstore import subscription as subscribe
from eventstore.aggregates.dispatcher import logged
from eventstore.backends.sql.source import StoreSource
from eventstore.erasure import Origin, PersonalData
from eventstore.errors import InvalidEventData, InvalidSeal, KeysMissing
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.fields.upcasting import Cast, Default, Drop, Rename
from eventstore.personal.sealing import Sealed
from eventstore.schema_registry import RegisteredSchema
from tests.rows import each_row
from tests.unit.eventstore.handlers import deliver
from tests.unit.eventstore.memory_source import MemoryArrival, MemorySource
from tests.vault import Vault

SENTINEL, NUMBER = "Zuckmayer", 7_391_264_805
MOMENT = datetime(1896, 12, 27, 3, 17, 59)


class Plan(Enum):
    BASIC = "basic"
    NAMED = SENTINEL


@dataclass(frozen=True)
class Address:
    street: str
    since: date


class Person(Aggregate):
    @event
    class Met:
        name: Annotated[str | None, Personal()] = None
        born: Annotated[date | None, Personal()] = None
        seen: Annotated[datetime | None, Personal()] = None
        income: Annotated[Annotated[Decimal, Digits(4, 0)] | None, Personal()] = None
        number: Annotated[int | None, Personal()] = None
        plan: Annotated[Plan | None, Personal()] = None
        home: Annotated[Address | None, Personal()] = None
        tags: Annotated[list[str] | None, Personal()] = None
        either: Annotated[int | str | None, Personal()] = None

    @command
    def meet(self, **values: Any) -> None:
        self.emit(self.Met(**values))


MISFITS: list[dict[str, Any]] = [
    {"name": [SENTINEL]},
    {"name": f"{SENTINEL}\ud800"},
    {"born": SENTINEL},
    {"seen": MOMENT},
    {"income": Decimal(NUMBER)},
    {"income": SENTINEL},
    {"number": NUMBER * 10**12},
    {"number": SENTINEL},
    {"plan": SENTINEL},
    {"home": SENTINEL},
    {"home": Address(street=SENTINEL, since=SENTINEL)},  # type: ignore[arg-type]
    {"tags": [SENTINEL, 7]},
    {"either": [SENTINEL]},
    {"either": NUMBER * 10**12},
]


def tells(text: str) -> bool:
    return any(word in text for word in (SENTINEL, str(NUMBER), "1896", "Zuck"))


def everything_of(error: BaseException) -> str:
    """The error, its chain whether it is shown or not, and what a log would print of it."""
    chain, seen = [error], [error]
    while chain:
        found = chain.pop()
        chain += [one for one in (found.__cause__, found.__context__) if one is not None and one not in seen]
        seen += chain
    # The lines of source in a traceback are no data.
    shown = traceback.TracebackException.from_exception(error).format_exception_only()
    return "\n".join([*(f"{one!r} {one} {vars(one)}" for one in seen), *shown])


@pytest.mark.parametrize("values", MISFITS, ids=str)
def test_a_personal_value_that_does_not_fit_is_told_by_its_type_alone(values: dict[str, Any]) -> None:
    store = MemoryEventStore()
    with pytest.raises(InvalidEventData, match="does not fit field") as refused:
        store.append("person-1", [Person.Met(**values)], expected=ANY)
    (name,) = values
    assert refused.value.place == f"person.met.{name}"
    assert type(values[name]).__name__ in refused.value.message
    assert not tells(everything_of(refused.value))


def test_a_clear_value_that_does_not_fit_is_told_as_ever() -> None:
    class Shelf(Aggregate):
        @event
        class Filled:
            what: int
            by: Annotated[str | None, Personal()] = None

    with pytest.raises(InvalidEventData, match=f"{SENTINEL!r} of type str .* has type int"):
        MemoryEventStore().append("shelf-1", [Shelf.Filled(what=SENTINEL)], expected=ANY)  # type: ignore[arg-type]


def test_the_log_of_commands_tells_none_of_it() -> None:
    dispatcher = Dispatcher(MemoryEventStore(), middleware=[logged()])
    with capture_logs() as told:
        for values in [*MISFITS, {"name": SENTINEL}]:
            with suppress(InvalidEventData):
                dispatcher.send("1", Person.meet, **values)
    assert len(told) == len(MISFITS) + 1
    # Random digits and measured ones may spell a year.
    assert not tells(str([{k: v for k, v in entry.items() if k not in ("id", "seconds")} for entry in told]))


@pytest.fixture
def store(keyed_store: SqlEventStore) -> SqlEventStore:
    return keyed_store


class Former(Aggregate, category="person"):
    """As persons were written before: a member that is gone, a text that became a number."""

    @event
    class Rated:
        plan: Annotated[Plan, Personal(erased=Plan.BASIC)]
        code: Annotated[str, Personal(erased="0")]


class Fewer(Enum):
    BASIC = "basic"


class Today(Aggregate, category="person"):
    @event(upcasters={1: [Cast("code", int)]})
    class Rated:
        plan: Annotated[Fewer, Personal(erased=Fewer.BASIC)]
        code: Annotated[int, Personal(erased=0)]


@pytest.mark.parametrize(("plan", "code"), [(Plan.NAMED, "7"), (Plan.BASIC, SENTINEL)])
def test_a_dead_letter_tells_none_of_it(store: SqlEventStore, plan: Plan, code: str) -> None:
    store.append("person-1", [NewEvent(Former.Rated(plan=plan, code=code))], expected=ANY)
    with pytest.raises(InvalidEventData) as refused:
        Dispatcher(store).load(Today, "1")
    assert not tells(everything_of(refused.value))

    @subscription("person", group="raters")
    def rate(event: Today.Rated) -> None:
        """It does not get that far."""

    with capture_logs() as told, Subscriber(rate, StoreSource(store, rate, category="person")) as subscriber:
        assert subscriber.run_once(timeout=0).dead == 1
    with store.engine.connect() as connection:
        (letter,) = connection.execute(sa.text("select * from factfold_dead_letters")).all()
    assert letter.error == "InvalidEventData"
    assert not tells(str(letter))
    assert not tells(str(told))


# ---- A sealed value opens in the event, for the subject, type and field that it was sealed for, and nowhere else


MASTER = MasterKeys({"one": os.urandom(32)})


class Order(Aggregate):
    @event
    class Placed:
        customer_id: str
        recipient: Annotated[str, Personal(subject="customer_id", erased="(erased)")]
        greeting: Annotated[str, Personal(subject="customer_id", erased="(erased)")]
        note: Annotated[str, Personal(erased="(erased)")]


KIND = event_type_of(Order.Placed)
HERE = Origin("order-1", uuid4().hex)
PLACED = Order.Placed(customer_id="7", recipient="Ada", greeting="Dear Ada", note="ring twice")
CLEAR = {"customer_id": "7", "recipient": "Ada", "greeting": "Dear Ada", "note": "ring twice"}


@pytest.fixture
def keys() -> Vault:
    return Vault()


def sealed(keys: Vault, origin: Origin = HERE) -> tuple[RegisteredSchema, dict[str, Any]]:
    encode = PersonalData(keys).sealer({"7", "1", "2"})
    return AvroDecoder({KIND.schema_id: KIND.registered}.__getitem__).decode(encode(KIND, PLACED, origin))


def disclosed(keys: Vault, schema: RegisteredSchema, values: Mapping[str, Any], origin: Origin = HERE) -> Any:
    (found,) = PersonalData(keys).disclose([(schema, dict(values), origin)])
    return found


def test_a_sealed_event_opens_where_it_was_sealed(keys: Vault) -> None:
    assert disclosed(keys, *sealed(keys)) == CLEAR


def swapped(values: dict[str, Any], one: str, other: str) -> dict[str, Any]:
    return {**values, one: values[other], other: values[one]}


ELSEWHERE: dict[str, Callable[[RegisteredSchema, dict[str, Any]], tuple[Any, Any, Origin]]] = {
    "another stream": lambda schema, values: (schema, values, Origin("order-2", HERE.event_id)),
    "another event": lambda schema, values: (schema, values, Origin("order-1", uuid4().hex)),
    "a stream without an id": lambda schema, values: (schema, values, Origin("order-", HERE.event_id)),
    "another type": lambda schema, values: (RegisteredSchema(schema.id, "order.sent", schema.schema), values, HERE),
    "another field": lambda schema, values: (schema, swapped(values, "recipient", "greeting"), HERE),
    "another subject": lambda schema, values: (schema, {**values, "customer_id": "2"}, HERE),
    "the value of another person in the event": lambda schema, values: (schema, swapped(values, "recipient", "note"),
                                                                        HERE),
}  # fmt: skip


@each_row("where", ELSEWHERE)
def test_a_sealed_value_opens_nowhere_else(keys: Vault, where: str) -> None:
    with pytest.raises(InvalidSeal, match="does not open"):
        disclosed(keys, *ELSEWHERE[where](*sealed(keys)))


@each_row("place", range(60))
def test_no_changed_byte_goes_unnoticed(keys: Vault, place: int) -> None:
    schema, values = sealed(keys)
    changed = bytearray(values["greeting"])
    changed[place % len(changed)] ^= 1 << (place % 8)
    with pytest.raises(InvalidSeal):
        disclosed(keys, schema, {**values, "greeting": bytes(changed)})


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_a_value_does_not_open_under_another_version(keys: Vault, version: int) -> None:
    schema, values = sealed(keys)
    for name in schema.personal:
        with pytest.raises(InvalidSeal):
            disclosed(keys, schema, {**values, name: bytes([version]) + values[name][1:]})


def test_a_schema_that_names_no_field_for_the_subject_is_refused(keys: Vault) -> None:
    schema, values = sealed(keys)
    fields = [
        {**f, "type": {**f["type"], "subject": "nobody"}} if f["name"] == "recipient" else f
        for f in schema.schema["fields"]
    ]
    with pytest.raises(InvalidSeal, match="names 'nobody' for the subject of recipient"):
        disclosed(keys, RegisteredSchema(schema.id, schema.name, {**schema.schema, "fields": fields}), values)


def test_a_value_copied_into_another_event_of_a_store_does_not_open_there(tmp_path: Any) -> None:
    with SqlEventStore(f"sqlite:///{tmp_path}/shop.db", keys=MASTER) as store:
        store.create_tables()
        for number, customer in (("1", "7"), ("2", "8")):
            placed = Order.Placed(customer_id=customer, recipient="Ada", greeting="Dear Ada", note="none")
            store.append(f"order-{number}", [placed], expected=ANY)
        events = store.tables.events
        with store.engine.begin() as database:
            (first,) = database.execute(sa.select(events.c.payload).where(events.c.stream == "order-1")).scalars()
            database.execute(sa.update(events).where(events.c.stream == "order-2").values(payload=first))
        (one,) = store.read_stream("order-1")
        assert one.data["recipient"] == "Ada"
        with pytest.raises(InvalidSeal, match="does not open"):
            list(store.read_stream("order-2"))
        store.erase("7")
        (one,) = store.read_stream("order-1")
        assert one.data["recipient"] == "(erased)"


@pytest.mark.parametrize("chosen", [None, UUID(int=7)])
def test_events_are_sealed_under_the_ids_that_they_get(tmp_path: Any, chosen: UUID | None) -> None:
    """Whether the caller, the store or its `new_id` chooses them."""
    for number, options in enumerate(({}, {"new_id": uuid4})):
        with SqlEventStore(f"sqlite:///{tmp_path}/{number}.db", keys=MASTER, **options) as store:
            store.create_tables()
            events = [NewEvent(PLACED, id=chosen), PLACED, NewEvent(PLACED)]
            result = store.append("order-1", events, expected=ANY)
            assert [e.id for e in store.read_stream("order-1")] == list(result.ids)
            assert [e.data for e in store.read_all()] == [CLEAR] * 3
            with SqlKeyStore(store.engine, MASTER) as others:
                assert [e.data for e in SqlEventStore(store.engine, keys=others).read_all()] == [CLEAR] * 3


# ---- A wrapped key opens as the key of its subject alone: who can change rows can open or destroy no other's


@pytest.fixture
def key_store(tmp_path):
    url = f"sqlite:///{tmp_path / 'keys.db'}"
    with SqlEventStore(url) as store:
        store.create_tables()
    with SqlKeyStore(url, MASTER) as opened:
        yield opened


def swap(key_store, one, other):
    """Give two keys each other's subject; a subject has one key at any time."""
    with key_store.engine.begin() as connection:
        for subject, new in ((one, "between"), (other, one), ("between", other)):
            connection.execute(
                sa.text("UPDATE subject_keys SET subject = :new WHERE subject = :subject"),
                {"subject": subject, "new": new},
            )


def test_a_key_under_another_subject_neither_opens_nor_is_destroyed(key_store):
    held = key_store.keys_for(["alice", "bob"])
    swap(key_store, "alice", "bob")
    for refused in (
        lambda: key_store.keys_for(["alice"]),
        lambda: key_store.keys([held["bob"].id]),
        lambda: key_store.erase("alice"),
    ):
        with pytest.raises(InvalidSeal):
            refused()
    swap(key_store, "alice", "bob")
    assert key_store.keys_for(["alice", "bob"]) == held


def test_a_key_that_no_master_key_opens_can_be_destroyed(key_store, tmp_path):
    key_store.keys_for(["alice"])
    with SqlKeyStore(f"sqlite:///{tmp_path / 'keys.db'}", MasterKeys({"two": os.urandom(32)})) as others:
        assert others.erase("alice") == 1


# ---- Personal fields of older versions: what an erased person's event shows is what today's class declares


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
def filled_store() -> Any:
    return MemoryEventStore()


def recorded(filled_store: Any, event: object = First.Called(phone="+41", line=2), *, erased: bool = True) -> Any:
    filled_store.append("caller-7", [event], expected=ANY)
    if erased:
        filled_store.erase("7")
    (found,) = filled_store.read_stream("caller-7")
    return found


def today(fields: dict[str, Any], steps: dict[int, Any] | None = None) -> Any:
    """An event class of fields that is today's `caller.called`."""
    made = event(name="caller.called", upcasters=steps or {})
    return event_type_of(made(type("Called", (), {"__annotations__": fields})))


def shown(found: Any, fields: dict[str, Any], steps: dict[int, Any] | None = None) -> list[Any]:
    return [vars(one) for one in today(fields, steps).events(found.schema_version, found.data)]


def test_an_erased_value_that_could_not_be_cast_shows_todays_placeholder(filled_store: Any) -> None:
    assert Caller.events_of(recorded(filled_store, erased=False)) == [Caller.Called(number=41, line=2)]
    filled_store.erase("7")
    assert Dispatcher(filled_store).load(Caller, "7").number == -1


def test_a_recorded_event_shows_what_its_writer_declared(filled_store: Any) -> None:
    found = recorded(filled_store)
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
def test_an_erased_event_shows_what_today_s_class_declares(filled_store: Any, what: str) -> None:
    written, fields, steps, expected = SHOWN[what]
    assert shown(recorded(filled_store, written), fields, steps) == [expected]


def test_a_writers_placeholder_that_cannot_be_cast_is_refused_where_it_would_be_shown(filled_store: Any) -> None:
    with pytest.raises(InvalidEventData, match="field phone cannot be cast"):
        shown(recorded(filled_store), {"phone": int, "line": int}, {1: [Cast("phone", int)]})


def test_a_function_sees_the_writers_placeholder_and_todays_is_shown(filled_store: Any) -> None:
    seen: list[Any] = []

    def note(old: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(old))
        return {**old, "line": old["line"] + 1}

    fields = {"number": Annotated[int, Personal(erased=-1)], "line": int}
    assert shown(recorded(filled_store), fields, {1: [note, *STEPS[1]]}) == [{"number": -1, "line": 3}]
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
