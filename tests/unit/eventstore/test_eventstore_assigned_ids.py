"""A schema's id follows from the schema, or a registry gives it: asked once, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from eventstore import ANY, NO_STREAM, Accepted, Aggregate, Dispatcher, SqlEventStore, event
from eventstore.errors import NotFramedAvro, RegistryUnreachable, SchemaError, SchemaIncompatible
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import schema_id_of
from eventstore.fields.upcasting import Cast, Rename, Retype
from eventstore.schema_check import check_schemas, require_readable
from eventstore.schema_registry import RegisteredSchema, canonical, check_same, fingerprint
from projections.spark.events.upcasting import Reading
from tests.errors import raises
from tests.orders import Order


class Numbered:
    """A registry that counts from a number, and answers as it is told."""

    def __init__(self, address: str = "http://one", *, first: int = 1) -> None:
        self.address = address
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self._first = first
        self._ids: dict[str, int] = {}

    def register(self, schemas: Sequence[RegisteredSchema]) -> list[RegisteredSchema]:
        self.asked += [schema.name for schema in schemas]
        if schemas and self.fails is not None:
            raise self.fails
        return [RegisteredSchema(self._id(s), s.name, s.schema, self.address) for s in schemas]

    def schema(self, schema_id: int) -> RegisteredSchema:
        raise AssertionError("no reader asks the registry")

    def _id(self, schema: RegisteredSchema) -> int:
        return self._ids.setdefault(canonical(schema.schema), self._first + len(self._ids))


def opened(url: str, registry: Any = None) -> SqlEventStore:
    store = SqlEventStore(url, registry=registry)
    store.create_tables()
    return store


def payloads(store: SqlEventStore) -> list[tuple[int, bytes]]:
    events = store.tables.events
    query = select(events.c.schema_id, events.c.payload).order_by(events.c.position)
    with store.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(query)]


def test_events_are_framed_by_the_ids_of_the_registry_and_read_without_it(url: str) -> None:
    with opened(url, Numbered()) as store:
        store.append("order-1", [Order.Placed(sku="tea"), Order.Shipped(carrier="sea")], expected=NO_STREAM)
        assert [(row_id, schema_id_of(payload)) for row_id, payload in payloads(store)] == [(1, 1), (2, 2)]
    with SqlEventStore(url) as reader:
        read = list(reader.read_stream("order-1"))
        assert [event.schema_id for event in read] == [1, 2]
        assert [Order.events_of(event)[0] for event in read] == [Order.Placed(sku="tea"), Order.Shipped(carrier="sea")]


def test_the_row_of_a_schema_says_whose_id_it_has(url: str) -> None:
    with opened(url, Numbered()) as store:
        store.register(Order)
        kinds = {kind.name: kind for kind in Order.event_types.values()}
        assert store.schemas() == [
            RegisteredSchema(number, kinds[name].name, kinds[name].schema, "http://one")
            for number, name in enumerate(kinds, 1)
        ]


def test_the_registry_is_asked_once_for_a_schema_however_often_it_is_appended(url: str) -> None:
    registry = Numbered()
    with opened(url, registry) as store:
        for _ in range(3):
            store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
        store.register(Order)
    assert registry.asked == ["order.placed", "order.shipped"]


def test_what_the_store_has_registered_is_appended_while_the_registry_is_away(url: str) -> None:
    away = Numbered()
    away.fails = RegistryUnreachable("away", remedy="start it")
    with opened(url, Numbered()) as store:
        store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
    with SqlEventStore(url, registry=away) as later:
        later.append("order-1", [Order.Placed(sku="soap")], expected=ANY)
        assert [row_id for row_id, _ in payloads(later)] == [1, 1]
        with pytest.raises(RegistryUnreachable):
            later.append("order-1", [Order.Shipped(carrier="sea")], expected=ANY)


@pytest.mark.parametrize(
    "error",
    [
        RegistryUnreachable("away", remedy="start it"),
        SchemaIncompatible("refused", remedy="change it", subject="order.shipped"),
    ],
)
def test_an_append_whose_schema_gets_no_id_writes_nothing_and_can_be_repeated(url: str, error: Exception) -> None:
    registry = Numbered()
    with opened(url, registry) as store:
        store.append("order-1", [Order.Placed(sku="tea")], expected=NO_STREAM)
        registry.fails = error
        with pytest.raises(type(error)):
            store.append("order-2", [Order.Placed(sku="tea"), Order.Shipped(carrier="sea")], expected=NO_STREAM)
        assert len(store.schemas()) == len(payloads(store)) == 1
        registry.fails = None
        store.append("order-2", [Order.Placed(sku="tea"), Order.Shipped(carrier="sea")], expected=NO_STREAM)
        assert len(payloads(store)) == 3


def test_a_store_changes_from_fingerprints_to_a_registry_and_back_and_reads_everything(url: str) -> None:
    for registry in (None, Numbered(), None, Numbered()):
        with opened(url, registry) as store:
            store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
    own = event_type_of(Order.Placed).schema_id
    with SqlEventStore(url) as store:
        assert [event.schema_id for event in store.read_stream("order-1")] == [own, 1, own, 1]
        assert [event.data["sku"] for event in store.read_stream("order-1")] == ["tea"] * 4


def test_ids_of_one_registry_are_not_taken_for_those_of_another(url: str) -> None:
    with opened(url, Numbered("http://one", first=1)) as store:
        store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
    other = Numbered("http://two", first=7)
    with opened(url, other) as store:
        store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
        assert [event.schema_id for event in store.read_stream("order-1")] == [1, 7]


def test_a_second_registry_that_gives_an_id_again_is_refused_before_an_event_is_read_wrongly(url: str) -> None:
    with opened(url, Numbered("http://one")) as store:
        store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
    with opened(url, Numbered("http://two")) as store:
        with raises(SchemaError, code="schema-conflict", match=r"http://one had the id before http://two"):
            store.append("order-1", [Order.Shipped(carrier="sea")], expected=ANY)
        assert len(payloads(store)) == 1


def test_an_id_of_a_transaction_that_was_rolled_back_is_kept_with_the_next(url: str) -> None:
    registry = Numbered()
    with opened(url, registry) as store:
        store.register()
        with store.engine.connect() as connection:
            store.append("order-1", [Order.Placed(sku="tea")], expected=ANY, connection=connection)
            connection.rollback()
        assert store.schemas() == []
        store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
        assert [event.data["sku"] for event in store.read_stream("order-1")] == ["tea"]
    assert registry.asked == ["order.placed"]


def test_a_command_is_answered_with_the_ids_its_events_are_framed_by(url: str) -> None:
    with opened(url, Numbered(first=40)) as store:
        accepted = Dispatcher(store).send("o1", Order.place, sku="tea")
        assert isinstance(accepted, Accepted)
        assert list(accepted.events) == list(store.read_stream("order-o1"))
        assert [store.schema(event.schema_id).name for event in accepted.events] == ["order.placed"]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_takes_the_ids_of_the_registry_along(url: str, tmp_path: Path, suffix: str) -> None:
    file, elsewhere = tmp_path / f"events.{suffix}", f"sqlite:///{tmp_path / 'other.db'}"
    with opened(url, Numbered()) as store, opened(elsewhere) as other:
        store.append("order-1", [Order.Placed(sku="tea")], expected=ANY)
        store.export_file(file)
        other.import_file(file)
        assert other.schemas() == store.schemas()
        assert [event.data for event in other.read_stream("order-1")] == [{"sku": "tea"}]


def test_what_a_schema_of_today_wrote_needs_no_change_under_whatever_id() -> None:
    kind = event_type_of(Order.Placed)
    written = RegisteredSchema(3, kind.name, kind.schema, "http://one")
    assert kind.seen(written) is written
    assert not Reading.of(written, kind).changes


def test_the_schemas_of_a_registry_are_no_new_ones_to_the_check() -> None:
    kept = [
        RegisteredSchema(n, kind.name, kind.schema, "http://one") for n, kind in enumerate(Order.event_types.values())
    ]
    assert list(check_schemas([Order], kept).new) == []


def test_the_payload_of_a_schema_without_a_registry_is_what_it_was() -> None:
    kind = event_type_of(Order.Placed)
    assert b"registry" not in kind.registered.to_json()
    given = RegisteredSchema(3, kind.name, kind.schema, "http://one")
    assert RegisteredSchema.from_json(given.to_json()) == given
    assert fingerprint(given.schema) == kind.schema_id


SCHEMA: dict[str, Any] = {
    "type": "record",
    "namespace": "order",
    "name": "placed",
    "fields": [{"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}}],
}


def test_a_fingerprint_follows_from_all_of_a_schema_but_the_order_of_its_keys() -> None:
    turned = dict(reversed(SCHEMA.items()))
    without_logical_type = {**SCHEMA, "fields": [{"name": "amount", "type": "bytes"}]}
    assert fingerprint(SCHEMA) == fingerprint(turned) == 1812711021  # for ever
    assert fingerprint(without_logical_type) != fingerprint(SCHEMA)
    assert canonical({"b": 1, "a": ["é"]}) == '{"a":["é"],"b":1}'


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_ids_fit_31_bits(schema: dict[str, Any]) -> None:
    assert 0 <= fingerprint(schema) < 2**31


def test_a_registered_schema_survives_its_topic_record() -> None:
    registered = RegisteredSchema.of(SCHEMA)
    assert registered.name == "order.placed"
    assert RegisteredSchema.from_json(registered.to_json()) == registered


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"id": 1}', b"\xff"])
def test_a_foreign_record_is_no_schema(payload: bytes) -> None:
    with pytest.raises(NotFramedAvro):
        RegisteredSchema.from_json(payload)


def test_two_schemas_with_one_id_are_a_conflict() -> None:
    kept = RegisteredSchema(7, "order.placed", SCHEMA)
    check_same(kept, RegisteredSchema(7, "order.placed", dict(reversed(SCHEMA.items()))))
    with raises(SchemaError, code="schema-conflict", match="id 7"):
        check_same(kept, RegisteredSchema(7, "order.shipped", {**SCHEMA, "name": "shipped"}))


# ---- A class that is new to a store is held against what the store has: once, before anything is written


def paid(today: Any, steps: dict[int, Any] | None = None, *, name: str = "Paid") -> type[Aggregate]:
    """An aggregate with an event whose amount is of a type."""
    made = event(upcasters=steps or {})(type(name, (), {"__annotations__": {"amount": today}}))
    return type("Bill", (Aggregate,), {name: made}, category="bill")


FIRST, CARELESS = paid(int), paid(str)
CAREFUL = paid(str, {1: [Cast("amount", str)]})


def one(owner: Any, amount: Any) -> Any:
    return next(iter(owner.event_types.values())).cls(amount=amount)


def kind_of(owner: Any) -> Any:
    return event_type_of(one(owner, 0))


@pytest.fixture
def bills_url(tmp_path: Path) -> str:
    with SqlEventStore(f"sqlite:///{tmp_path}/bills.db") as opened:
        opened.create_tables()
        opened.append("bill-1", [one(FIRST, 3)], expected=ANY)
    return f"sqlite:///{tmp_path}/bills.db"


@pytest.fixture
def bills(bills_url: str) -> Iterator[SqlEventStore]:
    with SqlEventStore(bills_url) as opened:
        yield opened


def test_what_breaks_and_what_to_do_about_it_is_said(bills: SqlEventStore) -> None:
    with pytest.raises(SchemaIncompatible) as refused:
        bills.register(CARELESS)
    stored = kind_of(FIRST).schema_id
    assert refused.value.message == (
        f"bill.paid.amount could not be read in events of schema {stored}, which is stored: "
        "it is long there, and string today"
    )
    assert refused.value.remedy == 'make it a new version, upcasters={…, 1: […]}: Cast("amount", …)'
    assert (refused.value.place, refused.value.subject) == ("bill.paid.amount", "bill.paid")


def test_nothing_of_a_refused_class_is_stored(bills: SqlEventStore) -> None:
    with pytest.raises(SchemaIncompatible):
        bills.register(CARELESS)
    with pytest.raises(SchemaIncompatible):
        bills.append("bill-1", [one(CARELESS, "x")], expected=ANY)
    assert [schema.id for schema in bills.schemas()] == [kind_of(FIRST).schema_id]
    assert bills.head("bill-1") == 0


def test_within_a_caller_s_transaction_too(bills: SqlEventStore) -> None:
    with pytest.raises(SchemaIncompatible), bills.engine.begin() as connection:
        bills.append("bill-1", [one(CARELESS, "x")], expected=ANY, connection=connection)
    with bills.engine.begin() as connection:
        bills.append("bill-1", [one(CAREFUL, "x")], expected=ANY, connection=connection)
    assert bills.head("bill-1") == 1


def test_a_registry_is_not_asked_for_a_class_that_the_store_refuses(bills_url: str) -> None:
    registry = Numbered()
    with SqlEventStore(bills_url, registry=registry) as opened:
        with pytest.raises(SchemaIncompatible):
            opened.append("bill-1", [one(CARELESS, "x")], expected=ANY)
        assert registry.asked == []
        opened.append("bill-1", [one(FIRST, 4)], expected=ANY)  # the same schema under another id
        with pytest.raises(SchemaIncompatible):
            opened.append("bill-1", [one(CARELESS, "x")], expected=ANY)


def statements(bills: SqlEventStore) -> list[str]:
    seen: list[str] = []
    sa.event.listen(bills.engine, "before_cursor_execute", lambda _, __, text, *rest: seen.append(text))
    return seen


def reads_of_payloads(seen: list[str]) -> int:
    return sum("schemas.payload" in text and "ORDER BY" in text for text in seen)


def test_stored_schemas_are_read_only_where_one_is_new(bills: SqlEventStore) -> None:
    seen = statements(bills)
    for number in range(3):
        bills.append("bill-1", [one(FIRST, number)], expected=ANY)
    assert reads_of_payloads(seen) == 0
    for number in range(3):
        bills.append("bill-1", [one(CAREFUL, str(number))], expected=ANY)
    assert reads_of_payloads(seen) == 1
    seen.clear()
    bills.append("bill-1", [one(FIRST, 1), one(CAREFUL, "1")], expected=ANY)
    assert not any("schemas" in text for text in seen)


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        (CAREFUL, FIRST),  # the older one of a deployment under way
        (FIRST, paid(str, {1: [lambda old: {"amount": str(old["amount"])}]})),
        (FIRST, paid(str, {1: [Retype("bill.other")]}, name="Settled")),
        (FIRST, paid(int | None)),
    ],
)
def test_what_nobody_can_tell_or_what_fits_passes(stored: Any, new: Any) -> None:
    require_readable([kind_of(new)], [kind_of(stored).registered])


def test_a_former_name_is_known_too() -> None:
    settled = paid(str, {1: [Retype("bill.paid")]}, name="Settled")
    with pytest.raises(SchemaIncompatible, match=r"bill\.settled\.amount .* it is long there, and string"):
        require_readable([kind_of(settled)], [kind_of(FIRST).registered])


def test_a_step_that_leads_wrong_is_named_without_another_version() -> None:
    wrong = paid(str, {1: [Rename("sum", to="amount")]})
    with pytest.raises(SchemaIncompatible) as refused:
        require_readable([kind_of(wrong)], [kind_of(FIRST).registered])
    assert refused.value.remedy == 'Cast("amount", …)'
