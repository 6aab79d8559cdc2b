"""A real Confluent-compatible registry, Apicurio: what it refuses, what goes on without it, and the commands."""

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

from eventstore import ANY, RegistrySettings, SqlEventStore
from eventstore.errors import RegistryUnreachable, SchemaIncompatible, UnknownSchema
from eventstore.event_types import event_type_of
from eventstore.kafka import ConfluentRegistry
from eventstore.schema_registry import RegisteredSchema
from tests.commands import factfold
from tests.integration.registered import Barrel, Crate, CrateOfAnother, CrateToday
from tests.rows import each_row

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
