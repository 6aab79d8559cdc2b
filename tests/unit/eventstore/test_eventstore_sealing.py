"""A sealed value opens in the event, for the subject, type and field that it was sealed for, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from eventstore import ANY, Aggregate, MasterKeys, NewEvent, Personal, SqlEventStore, SqlKeyStore, event
from eventstore.backends.memory import MemoryKeys
from eventstore.erasure import Origin, PersonalData
from eventstore.errors import InvalidSeal
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import AvroDecoder
from eventstore.schema_registry import RegisteredSchema
from tests.rows import each_row

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
def keys() -> MemoryKeys:
    return MemoryKeys()


def sealed(keys: MemoryKeys, origin: Origin = HERE) -> tuple[RegisteredSchema, dict[str, Any]]:
    encode = PersonalData(keys).sealer({"7", "1", "2"})
    return AvroDecoder({KIND.schema_id: KIND.registered}.__getitem__).decode(encode(KIND, PLACED, origin))


def disclosed(keys: MemoryKeys, schema: RegisteredSchema, values: Mapping[str, Any], origin: Origin = HERE) -> Any:
    (found,) = PersonalData(keys).disclose([(schema, dict(values), origin)])
    return found


def test_a_sealed_event_opens_where_it_was_sealed(keys: MemoryKeys) -> None:
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
def test_a_sealed_value_opens_nowhere_else(keys: MemoryKeys, where: str) -> None:
    with pytest.raises(InvalidSeal, match="does not open"):
        disclosed(keys, *ELSEWHERE[where](*sealed(keys)))


@each_row("place", range(60))
def test_no_changed_byte_goes_unnoticed(keys: MemoryKeys, place: int) -> None:
    schema, values = sealed(keys)
    changed = bytearray(values["greeting"])
    changed[place % len(changed)] ^= 1 << (place % 8)
    with pytest.raises(InvalidSeal):
        disclosed(keys, schema, {**values, "greeting": bytes(changed)})


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_a_value_does_not_open_under_another_version(keys: MemoryKeys, version: int) -> None:
    schema, values = sealed(keys)
    for name in schema.personal:
        with pytest.raises(InvalidSeal):
            disclosed(keys, schema, {**values, name: bytes([version]) + values[name][1:]})


def test_a_schema_that_names_no_field_for_the_subject_is_refused(keys: MemoryKeys) -> None:
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
