"""What opens a store or a subscription offers what its siblings do: a forgotten option is found missing late."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

from eventstore import (
    ANY,
    Aggregate,
    AsyncSqlEventStore,
    MasterKeys,
    Personal,
    SqlEventStore,
    event,
    open_async_subscriber,
    open_subscriber,
    run_async_subscription,
    run_subscription,
    subscription,
    tenant_store,
)
from eventstore.backends.memory_keys import MemoryKeys
from eventstore.backends.sql import engines, tenants
from eventstore.errors import UnsupportedBackend
from eventstore.kafka import source as kafka_source


class Guest(Aggregate):
    @event
    class Invited:
        name: Annotated[str, Personal(erased="(erased)")]


def options(opener: Callable[..., object]) -> set[str]:
    parameters = inspect.signature(opener).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}


def test_every_opener_of_a_store_takes_the_same_options() -> None:
    every = options(SqlEventStore)
    assert options(AsyncSqlEventStore) == every
    assert options(tenant_store) == every - {"schema", "topic_prefix"}, "these two are the tenant's own"


def test_every_opener_of_a_subscription_takes_the_same_options() -> None:
    every = options(open_subscriber)
    assert "keys" in every
    assert options(open_async_subscriber) == every
    assert options(run_subscription) == every | {"stop", "on_batch", "on_open", "restarts", "metrics"}
    assert options(run_async_subscription) == every | {"stop", "on_batch", "restarts", "metrics"}


def test_a_tenant_s_store_hands_its_keys_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def of_a_file(database: object, **options: Any) -> SqlEventStore:
        return SqlEventStore(f"sqlite:///{tmp_path}/acme.db", keys=options["keys"])

    monkeypatch.setattr(tenants, "SqlEventStore", of_a_file)
    with tenant_store("postgresql://u@h/d", "acme", keys=MasterKeys({"one": os.urandom(32)})) as store:
        store.create_tables()
        store.append("guest-1", [Guest.Invited(name="Ada")], expected=ANY)
        assert [recorded.data["name"] for recorded in store.read_all()] == ["Ada"]


def test_no_engine_is_opened_to_see_what_a_url_says(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    create = engines.create_engine
    monkeypatch.setattr(engines, "create_engine", lambda url, **o: opened.append(str(url)) or create(url, **o))
    with pytest.raises(UnsupportedBackend, match="tenants apart"):
        tenant_store("sqlite:///acme.db", "acme")
    with pytest.raises(UnsupportedBackend, match="cannot be read"):
        tenant_store("nonsense", "acme")
    assert opened == []
    tenant_store("postgresql://u@h/d", "acme").close()
    assert len(opened) == 1


def test_an_async_subscriber_reads_with_the_keys_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    keys = MemoryKeys()

    @subscription("guest", group="welcome")
    async def welcome(event: Guest.Invited) -> None:
        """Nothing arrives here."""

    monkeypatch.setattr(kafka_source, "KafkaSource", lambda *_, keys=None: given.append(keys))
    open_async_subscriber(welcome, keys=keys)
    assert given == [keys]
