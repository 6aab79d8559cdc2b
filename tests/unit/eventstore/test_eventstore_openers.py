"""What opens a store offers what its siblings do, the package root is small, and errors carry cause and remedy."""

from __future__ import annotations

import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eventstore
from eventstore import (
    ANY,
    AsyncSqlEventStore,
    MasterKeys,
    SqlEventStore,
    errors,
    open_async_subscriber,
    open_subscriber,
    run_async_subscription,
    run_subscription,
    subscription,
    tenant_store,
)
from eventstore.backends.memory import MemoryKeys
from eventstore.backends.sql import engines, tenants
from eventstore.errors import FactfoldError, Refused, UnsupportedBackend, WrongExpectedVersion
from eventstore.kafka import source as kafka_source
from tests.unit.eventstore.customer import Customer


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
        store.append("customer-1", [Customer.Registered(name="Ada")], expected=ANY)
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

    @subscription("customer", group="welcome")
    async def welcome(event: Customer.Registered) -> None:
        """Nothing arrives here."""

    monkeypatch.setattr(kafka_source, "KafkaSource", lambda *_, keys=None: given.append(keys))
    open_async_subscriber(welcome, keys=keys)
    assert given == [keys]


def test_the_root_has_no_errors_and_is_small_enough_to_read() -> None:
    assert set(vars(errors)) & set(eventstore.__all__) == set()
    assert len(eventstore.__all__) <= 60


def test_the_embedded_store_and_its_subscriber_need_no_postgres_driver_and_nothing_of_asyncio() -> None:
    absent = "import sys; sys.modules.update(dict.fromkeys(('psycopg', 'greenlet', 'aiosqlite')))"
    use = "from eventstore import SqlEventStore; store = SqlEventStore('sqlite://'); store.create_tables()"
    subprocess.run([sys.executable, "-c", f"{absent}; {use}; store.close(); import eventstore.subscribing"], check=True)


def test_an_error_reads_as_cause_remedy_and_place() -> None:
    error = FactfoldError("the kettle is empty", remedy="fill it", place="kitchen")
    assert str(error) == "the kettle is empty\n  remedy: fill it\n  at: kitchen"
    assert str(FactfoldError("no", remedy="go")) == "no\n  remedy: go"


@pytest.mark.parametrize(
    "error",
    [
        FactfoldError("m", remedy="r", place="p"),
        WrongExpectedVersion("order-1", 3, None),
        Refused("too late", place="order-1"),
    ],
)
def test_an_error_survives_pickling(error: FactfoldError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_the_tree_draws_every_error_and_nothing_else() -> None:
    names = {name for name, value in vars(errors).items() if isinstance(value, type)}
    drawn = re.findall(r"^[│├└─ ]*(\w+)\b", (errors.__doc__ or "").partition("\n\n")[2], re.MULTILINE)
    assert len(drawn) > 30
    assert sorted(drawn) == sorted(names)


def test_a_stale_version_says_where_the_stream_stands() -> None:
    assert "is at version 4, the writer expected 2" in str(WrongExpectedVersion("order-1", 2, 4))
    assert "has no events" in str(WrongExpectedVersion("order-1", 2, None))
