"""What goes wrong with a source and a worker, one by one, on live servers: each says its cause and what to do.

A slot that was dropped under a connector is in test_cdc_control (the connector's failure) and test_cdc_looking_after
(the doctor's words); grants and other faults of a source are in test_cdc_doctor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

import cdc
from cdc import ConnectClient
from cdc.errors import CdcError, ConnectorFailed, ConnectRejected, ConnectUnavailable, InvalidConnector, SourceNotReady
from tests.connectors import heartbeats
from tests.waiting import wait_until

if TYPE_CHECKING:
    from factfold.stack import LocalStack


@dataclass
class Shop:
    """A database to capture from, the worker, and what a test wants otherwise."""

    captured: Any
    client: ConnectClient

    def declared(self, **changes: Any) -> Any:
        return self.captured.source(**{"tables": ("public.items",), **changes})

    def apply(self, *, looks_first: bool = True, **changes: Any) -> None:
        source = self.captured.engine if looks_first else None
        cdc.apply(self.client, self.declared(**changes), source=source)

    def secret(self, password: str) -> str:
        folder = self.captured.stack.info.secrets_dir
        written = cdc.write_secrets(folder, f"{self.captured.name}-other", values={"password": password})
        return written["password"]


@pytest.fixture(scope="module")
def shop(captured: Callable[[], Any], connect: ConnectClient) -> Shop:
    made = captured()
    made.run("CREATE TABLE items (id int PRIMARY KEY, name text)", "CREATE TABLE keyless (id int)")
    return Shop(made, connect)


@pytest.fixture
def source(shop: Shop) -> Any:
    return shop.captured.prepared(shop.declared())


def wrong_password(shop: Shop) -> None:
    shop.apply(password=shop.secret("wrong"))


def secrets_file_that_is_not_there(shop: Shop) -> None:
    folder = shop.captured.stack.info.secrets_dir
    shop.apply(password=f"${{file:{folder}/gone.properties:password}}")


def missing_publication(shop: Shop) -> None:
    shop.captured.run(f"DROP PUBLICATION {shop.declared().publication}")
    shop.apply()


def missing_publication_unlooked_at(shop: Shop) -> None:
    shop.captured.run(f"DROP PUBLICATION {shop.declared().publication}")
    shop.apply(looks_first=False)


def table_without_primary_key(shop: Shop) -> None:
    shop.apply(tables=("public.keyless",))


def replica_identity_nothing(shop: Shop) -> None:
    shop.captured.run("ALTER TABLE items REPLICA IDENTITY NOTHING")
    try:
        shop.apply()
    finally:
        shop.captured.run("ALTER TABLE items REPLICA IDENTITY DEFAULT")


def table_that_is_not_there(shop: Shop) -> None:
    shop.apply(tables=("public.gone",))


def unknown_key(shop: Shop) -> None:
    shop.apply(extra={"snapshot.mod": "initial"})


def wrong_value(shop: Shop) -> None:
    shop.apply(extra={"max.batch.size": -1})


def worker_down(shop: Shop) -> None:
    with ConnectClient("http://127.0.0.1:9") as nobody:
        cdc.apply(nobody, shop.declared(), source=shop.captured.engine, timeout=0.2)


def database_down(shop: Shop) -> None:
    shop.apply(looks_first=False, port=9)


BAD_INPUT: dict[Callable[[Shop], None], tuple[type[CdcError], str, str]] = {
    wrong_password: (ConnectRejected, "password authentication failed for user", "the password behind the connector's"),
    secrets_file_that_is_not_there: (ConnectRejected, "Could not read properties", "factfold cdc prepare"),
    missing_publication: (SourceNotReady, "publication .* does not exist", "CREATE PUBLICATION"),
    missing_publication_unlooked_at: (ConnectorFailed, "Publication autocreation is disabled", "factfold cdc prepare"),
    table_without_primary_key: (SourceNotReady, "public.keyless has no primary key", "ADD PRIMARY KEY"),
    replica_identity_nothing: (SourceNotReady, "replica identity NOTHING", "REPLICA IDENTITY DEFAULT"),
    table_that_is_not_there: (SourceNotReady, "public.gone does not exist", "take it out of the declaration"),
    unknown_key: (InvalidConnector, "a setting that is not read: 'snapshot.mod'", "did you mean snapshot.mode"),
    wrong_value: (ConnectRejected, "max.batch.size", "repair the cause"),
    worker_down: (ConnectUnavailable, "no Kafka Connect worker answers", "start the worker"),
    database_down: (ConnectRejected, "Connection .* refused", "start the database"),
}


@pytest.mark.parametrize("plant", BAD_INPUT, ids=lambda plant: plant.__name__.replace("_", " "))
def test_bad_input_says_its_cause_and_what_to_do(shop: Shop, source: Any, plant: Callable[[Shop], None]) -> None:
    kind, cause, remedy = BAD_INPUT[plant]
    with pytest.raises(kind, match=cause) as failure:
        plant(shop)
    assert "\n" not in failure.value.message
    assert remedy in failure.value.remedy
    assert failure.value.place
    assert shop.captured.name not in shop.client.connectors()


def test_a_worker_that_rebalances_is_asked_again(connect: ConnectClient, shop: Shop, stack: LocalStack) -> None:
    """Connectors that come and go make it rebalance; what is asked meanwhile is refused, and asked again.

    One that does not end within the client's patience is in test_connect_client, with its words and its remedy.
    """
    name, config = f"{shop.captured.name}-hearts", heartbeats(stack.info.bootstrap_servers)
    connect.create(name, config, state="STOPPED")
    stop = threading.Event()

    def come_and_go() -> None:
        with ConnectClient(connect.url) as client:
            while not stop.is_set():
                client.create(f"{name}-too", config, state="STOPPED")
                cdc.delete(client, f"{name}-too")

    def asked_again() -> bool:
        assert connect.config(name)["name"] == name
        return any("rebalance" in log.get("caused_by", "") for log in logs)

    with capture_logs() as logs, ThreadPoolExecutor(1) as pool:
        coming_and_going = pool.submit(come_and_go)
        try:
            wait_until(asked_again, what="a rebalance")
        finally:
            stop.set()
        coming_and_going.result()
    cdc.delete(connect, name)
