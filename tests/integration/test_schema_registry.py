"""A real Confluent-compatible registry, Apicurio: its ids on every road."""

from __future__ import annotations

import importlib.util
import json
import sys
import uuid
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc import apply_connector, prepare_topics
from eventstore import ANY, RegistrySettings, SqlEventStore, open_subscriber, subscription
from eventstore.errors import RegistryUnreachable, SchemaError, SchemaIncompatible, UnknownSchema
from eventstore.event_types import event_type_of
from eventstore.fields.serialization import schema_id_of
from eventstore.kafka import ConfluentRegistry
from eventstore.kafka.consumer import TopicSchemas, read_schemas
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.schema_registry import RegisteredSchema
from tests.commands import factfold
from tests.errors import raises
from tests.integration.delivering import deliver
from tests.integration.registered import Barrel, Crate, CrateOfAnother, CrateToday
from tests.rows import each_row


class Road:
    """A store with a registry, its connector, and two versions of a class on one topic."""

    def __init__(self, captured, connect, settings, registry) -> None:
        self.topic = f"crate.{uuid.uuid4().hex[:8]}"
        self.store = SqlEventStore(captured.engine, registry=registry)
        self.store.create_tables()
        self.store.declare_category("crate", partitions=3, topic=self.topic)
        self.append(1, Crate)
        prepare_topics(settings, [(self.topic, 3)])
        apply_connector(connect, captured.prepared(captured.outbox()), source=captured.engine)
        self.append(2, Crate)
        for number in (1, 2):
            self.store.append(f"crate-{number}", [CrateToday.Packed(kilos=number + 10, name="new")], expected=ANY)

    def append(self, number: int, crate: Any) -> None:
        events = [crate.Packed(kilos=number, label="old"), crate.Sent(carrier="sea")]
        self.store.append(f"crate-{number}", events, expected=ANY)


@pytest.fixture(scope="module")
def road(captured, connect, settings, registry_url):
    with ConfluentRegistry(RegistrySettings(url=registry_url)) as registry:
        yield Road(captured(), connect, settings, registry)


@pytest.fixture(scope="module")
def records(road, records_of):
    return records_of(road.topic, count=6)


def decoded_by_another(foreign, record) -> tuple[str, dict[str, Any]]:
    value = AvroDeserializer(foreign)(record.value, SerializationContext(record.topic, MessageField.VALUE))
    return record.key.decode(), value


def test_another_clients_deserializer_reads_every_record_of_the_topic(foreign, records):
    assert dict(decoded_by_another(foreign, record) for record in records) == {
        "crate-1@0": {"kilos": 1, "label": "old"},
        "crate-1@1": {"carrier": "sea"},
        "crate-1@2": {"kilos": 11, "name": "new"},
        "crate-2@0": {"kilos": 2, "label": "old"},
        "crate-2@1": {"carrier": "sea"},
        "crate-2@2": {"kilos": 12, "name": "new"},
    }


def test_a_version_of_a_class_is_a_version_of_the_subject_that_is_the_events_type(foreign, road, records):
    assert {"crate.packed", "crate.sent"} <= set(foreign.get_subjects())
    assert foreign.get_versions("crate.packed") == [1, 2]
    assert foreign.get_versions("crate.sent") == [1]
    framed = {schema_id_of(record.value) for record in records}
    assert framed == {foreign.get_version("crate.packed", n).schema_id for n in (1, 2)} | {
        foreign.get_version("crate.sent", 1).schema_id
    }


def test_the_schemas_topic_carries_the_ids_of_the_registry_so_that_every_reader_works_without_it(
    settings, registry_url, road, records
):
    schemas = read_schemas(settings)
    for schema_id in {schema_id_of(record.value) for record in records}:
        assert schemas[schema_id].registry == registry_url
        assert schemas[schema_id] == road.store.schema(schema_id)


def test_a_subscription_reads_both_versions_as_of_today(settings, road, records):
    seen: list[Any] = []

    def note(event: CrateToday.Packed | CrateToday.Sent) -> None:
        seen.append(event)

    declared = subscription(road.topic, group=f"g-{road.topic}")(note)
    with open_subscriber(declared, settings=settings) as subscriber:
        deliver(subscriber, records=6)
    packed = sorted((e.kilos, e.name) for e in seen if isinstance(e, CrateToday.Packed))
    assert packed == [(1, "old"), (2, "old"), (11, "new"), (12, "new")]
    assert len(seen) == 6


def test_an_id_that_two_registries_gave_is_refused_by_readers_of_the_schemas_topic(settings):
    topic = f"schemas.{uuid.uuid4().hex[:8]}"
    first, second = (event_type_of(kind).registered for kind in (Crate.Packed, Crate.Sent))
    prepare_topics(settings, [(topic, 1)])
    send(settings, topic, RegisteredSchema(1, first.name, first.schema, "http://one"))
    schemas = TopicSchemas(settings, topic=topic)
    send(settings, topic, RegisteredSchema(1, second.name, second.schema, "http://two"))
    with raises(SchemaError, code="schema-conflict", match="http://one had the id before http://two"):
        schemas.refresh()
    schemas.close()
    with raises(SchemaError, code="schema-conflict"):
        read_schemas(settings, topic=topic)


def send(settings, topic: str, schema: RegisteredSchema) -> None:
    record = OutgoingRecord(topic=topic, key=str(schema.id).encode(), value=schema.to_json())
    RecordProducer(settings).send([record])


# ---- A real Confluent-compatible registry, Apicurio: what it refuses, what goes on without it, and the commands


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-a-schema-registry.md"


@pytest.fixture
def store(database, registry):
    """A store in a database of its own."""
    with SqlEventStore(database(), registry=registry) as opened:
        opened.create_tables()
        yield opened


def test_a_schema_the_registry_calls_incompatible_is_refused_and_nothing_is_appended(registry_url, store, foreign):
    store.register(Crate)
    strict = RegistrySettings(url=registry_url, compatibility={"crate": "BACKWARD"})
    with ConfluentRegistry(strict) as registry, SqlEventStore(store.engine, registry=registry) as writer:
        with pytest.raises(SchemaIncompatible, match="price") as refused:
            writer.append("crate-1", [Crate.Packed(kilos=1, label="x"), CrateOfAnother.Sent(carrier="sea", price=1)],
                          expected=ANY)  # fmt: skip
        assert refused.value.subject == "crate.sent"
        assert list(writer.read_stream("crate-1")) == []
        assert len(writer.schemas()) == 2
    assert foreign.get_versions("crate.sent") == [1]
    foreign.set_compatibility("crate.sent", "NONE")


def test_while_the_registry_is_away_known_kinds_are_appended_and_when_it_is_back_it_knows_its_ids(
    stack, registry_url, store, foreign
):
    store.append("crate-1", [Crate.Packed(kilos=1, label="x")], expected=ANY)
    (schema,) = store.schemas()
    stack.stop("registry")
    try:
        with ConfluentRegistry(RegistrySettings(url=registry_url)) as registry:
            again = SqlEventStore(store.engine, registry=registry)
            again.append("crate-1", [Crate.Packed(kilos=2, label="x")], expected=ANY)
            with pytest.raises(RegistryUnreachable):
                again.append("crate-1", [Crate.Sent(carrier="sea")], expected=ANY)
        assert [event.schema_id for event in store.read_stream("crate-1")] == [schema.id] * 2
    finally:
        stack.start("registry")
    with ConfluentRegistry(RegistrySettings(url=registry_url)) as registry:
        assert registry.schema(schema.id).schema == schema.schema
        assert registry.register([event_type_of(Crate.Packed).registered]) == [schema]


def test_without_leave_to_register_the_deployment_registers_first(registry_url, store):
    careful = RegistrySettings(url=registry_url, auto_register=False)
    command = ("schema", "register", "tests.integration.registered:Barrel", "--registry-url", registry_url)
    with ConfluentRegistry(careful) as registry, SqlEventStore(store.engine, registry=registry) as writer:
        with pytest.raises(UnknownSchema, match=r"barrel\.filled"):
            writer.append("barrel-1", [Barrel.Filled(litres=3)], expected=ANY)
        assert "barrel.filled" in factfold(*command).stdout
        writer.append("barrel-1", [Barrel.Filled(litres=3)], expected=ANY)
        assert len(list(writer.read_stream("barrel-1"))) == 1


def test_the_command_holds_the_code_against_every_version_in_the_registry(registry_url, store):
    module = "tests.integration.registered"
    store.register(Crate, CrateToday)
    check = partial(factfold, "schema", "check", "--registry-url", registry_url, "--json")
    assert check(f"{module}:CrateToday").exit_code == 0
    refused = check(f"{module}:Crate")
    assert refused.exit_code == 3
    found = json.loads(refused.stdout.splitlines()[-1])
    assert [finding["place"] for finding in found["misfits"]] == ["crate.packed"]


def field(name: str, avro: Any, **default: Any) -> dict[str, Any]:
    return {"name": name, "type": avro, **default}


SKU, NOTE = field("sku", "long"), field("note", ["null", "string"], default=None)


@each_row(
    "before, after, backward, forward",
    [
        ([SKU], [SKU, NOTE], True, True),
        ([SKU], [SKU, field("price", "long")], False, True),
        ([SKU, NOTE], [SKU], True, True),
        ([SKU, field("price", "long")], [SKU], True, False),
        ([SKU], [field("article", "long")], False, False),
        ([SKU], [field("sku", "string")], False, False),
    ],
)
@each_row("rule", ["BACKWARD", "FORWARD"])
def test_the_rules_forbid_what_the_page_says(registry_url, before, after, backward, forward, rule):
    category = f"c{uuid.uuid4().hex[:8]}"
    first, second = (
        RegisteredSchema.of({"type": "record", "namespace": category, "name": "placed", "fields": fields})
        for fields in (before, after)
    )
    passes = backward if rule == "BACKWARD" else forward
    with ConfluentRegistry(RegistrySettings(url=registry_url, compatibility={category: rule})) as registry:
        registry.register([first])
        with nullcontext() if passes else pytest.raises(SchemaIncompatible):
            registry.register([second])


def test_the_page_about_registries_runs(registry_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTFOLD_REGISTRY__URL", registry_url)
    page = PAGE.read_text("utf-8").split("```python server\n")[1].split("```")[0]
    (tmp_path / "page_registry.py").write_text(page, "utf-8")
    spec = importlib.util.spec_from_file_location("page_registry", tmp_path / "page_registry.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "page_registry", module)
    spec.loader.exec_module(module)
    module.store.close(), module.registry.close()
