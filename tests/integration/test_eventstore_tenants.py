"""Tenants in one database, and their events on the road to Kafka."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from typer.testing import CliRunner

from cdc import apply_connector, prepare_topics
from eventstore import ANY, NO_STREAM, Aggregate, MasterKeys, SqlEventStore, SqlKeyStore, event, tenant_store, tenants
from eventstore.errors import InvalidSeal
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from factfold.cli.entry import application


class Lamp(Aggregate):
    @event
    class Lit:
        room: str


@pytest.fixture
def engine(database: Callable[[], str]) -> Iterator[Engine]:
    engine = create_engine(database())
    yield engine
    engine.dispose()


def opened(engine: Engine, tenant: str) -> SqlEventStore:
    store = tenant_store(engine, tenant)
    store.create_tables()
    return store


def test_the_same_stream_is_another_one_for_each_tenant(engine: Engine) -> None:
    stores = {tenant: opened(engine, tenant) for tenant in ("acme", "globex")}
    for tenant, store in stores.items():
        store.append("lamp-1", [Lamp.Lit(room=tenant)], expected=NO_STREAM)
    for tenant, store in stores.items():
        (recorded,) = store.read_all()
        assert recorded.data == {"room": tenant}
        assert [category.topic for category in store.categories()] == [f"{tenant}-lamp"]
    with engine.connect() as connection:
        found = connection.execute(text("select topic, ce_source from tenant_acme.events")).all()
    assert found == [("acme-lamp", "/acme")]


def test_a_key_copied_into_another_store_does_not_open_there(engine: Engine) -> None:
    for tenant in ("acme", "globex"):
        opened(engine, tenant)
    SqlEventStore(engine).create_tables()
    master = MasterKeys({"one": os.urandom(32)})
    stores = [SqlKeyStore(engine, master, schema=schema) for schema in ("tenant_acme", "tenant_globex", "public", None)]
    acme, _, public, default = stores
    held = acme.keys_for(["alice"])
    with engine.begin() as connection:
        for schema in ("tenant_globex", "public"):
            connection.execute(text(f"insert into {schema}.subject_keys select * from tenant_acme.subject_keys"))
    for store in stores[1:]:
        with pytest.raises(InvalidSeal):
            store.keys([held["alice"].id])
    assert acme.keys_for(["alice"]) == held
    assert public.keys_for(["bob"]) == default.keys_for(["bob"])


def test_tenants_are_those_who_have_a_store(engine: Engine) -> None:
    for tenant in ("globex", "acme"):
        opened(engine, tenant)
    SqlEventStore(engine, schema="shop").create_tables()
    with engine.begin() as connection:
        connection.execute(text("create schema tenant_nobody"))
    assert tenants(engine) == ["acme", "globex"]


def test_the_command_lists_tenants_and_says_who_has_to_be_migrated(engine: Engine) -> None:
    opened(engine, "acme")
    opened(engine, "globex")
    url = engine.url.render_as_string(hide_password=False)
    ask = ["store", "tenants", "--store-url", url]
    assert CliRunner().invoke(application(), ask).exit_code == 0
    with engine.begin() as connection:
        later = ("subject_keys", "subject_streams", "factfold_processes", "factfold_scheduled")
        connection.execute(text(f"drop table {', '.join(f'tenant_acme.{name}' for name in later)}"))
        connection.execute(text("update tenant_acme.factfold_migrations set version_num = '0003'"))
    told = CliRunner().invoke(application(), [*ask, "--json"])
    assert told.exit_code == 3
    assert [name for name, version in json.loads(told.output).items() if version["installed"] == "0003"] == ["acme"]
    CliRunner().invoke(application(), ["store", "migrate", "--store-url", url, "--store-schema", "tenant_acme"])
    assert CliRunner().invoke(application(), ask).exit_code == 0


def test_one_connector_publishes_every_tenant_to_topics_of_its_own(
    captured: Callable[[], Any], connect: Any, settings: Settings, records_of: Callable[..., list[TopicRecord]]
) -> None:
    made = captured()
    names = [f"{made.name}_{letter}" for letter in "ab"]
    stores = [opened(made.engine, name) for name in names]
    for store, name in zip(stores, names, strict=True):
        store.append("lamp-1", [Lamp.Lit(room=f"{name} early")], expected=ANY)
        prepare_topics(settings, stores=[store])
    tables = tuple(f"tenant_{name}.{table}" for name in names for table in ("events", "schemas"))
    apply_connector(connect, made.prepared(made.outbox(tables=tables)), source=made.engine)
    for store in stores:
        store.append("lamp-1", [Lamp.Lit(room="late")], expected=0)
    for name in names:
        records = records_of(f"{name}-lamp", count=2)
        assert [record.key for record in records] == [b"lamp-1@0", b"lamp-1@1"]
        assert {dict(record.headers)["ce_source"] for record in records} == {f"/{name}".encode()}
        assert f"{name} early".encode() in (records[0].value or b"")
