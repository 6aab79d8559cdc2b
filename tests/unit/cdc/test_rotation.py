"""Rotations that are refused before anything is changed: no database is asked, no file is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from cdc import PostgresSource, rotate_password, write_secrets
from cdc.connect.status import ConfigProblem, ConnectorInfo, ConnectorStatus
from cdc.errors import ConnectRejected, InvalidConnector

# Asked for anything, it would raise SourceNotReady.
NOBODY = create_engine("postgresql+psycopg://nobody@127.0.0.1:9/nowhere")


class Cluster:
    """A worker that runs connectors, and has something to say about their configurations."""

    def __init__(self, *running: Any, problem: str = "") -> None:
        self._running = {name: config for name, config in running}
        self._problems = (ConfigProblem("database.hostname", problem),) if problem else ()

    def overview(self) -> dict[str, tuple[ConnectorInfo, ConnectorStatus]]:
        return {name: (info(name, config), status(name)) for name, config in self._running.items()}

    def validate(self, config: dict[str, str]) -> tuple[ConfigProblem, ...]:
        return self._problems


def info(name: str, config: dict[str, str]) -> ConnectorInfo:
    return ConnectorInfo.of({"name": name, "config": {"name": name, **config}, "tasks": []})


def status(name: str) -> ConnectorStatus:
    return ConnectorStatus.of(
        {"name": name, "connector": {"state": "RUNNING", "worker_id": "here"}, "tasks": [], "type": "source"}
    )


def runs(connector: PostgresSource, **changes: str) -> tuple[str, dict[str, str]]:
    changed = {key.replace("_", "."): value for key, value in changes.items()}
    return connector.name, {**connector.config(), **changed}


@pytest.fixture
def shop(tmp_path: Path) -> PostgresSource:
    references = write_secrets(tmp_path, "shop", values={"password": "old"})
    return PostgresSource(
        name="shop", host="db", database="shop", user="shop_cdc", password=references["password"], topic_prefix="shop",
        tables=("public.customers",),
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"database_user": "other"},
        {"database_hostname": "elsewhere"},
        {"database_port": "5433"},
        {"connector_class": "io.debezium.connector.mysql.MySqlConnector"},
    ],
)
def test_another_role_s_connector_with_the_same_secret_is_named(shop: PostgresSource, changes: dict[str, str]) -> None:
    stranger = runs(replace(shop, name="stranger"), **changes)

    with pytest.raises(InvalidConnector, match="'stranger' reads the same secret") as refused:
        rotate_password(Cluster(runs(shop), stranger), shop, source=NOBODY)  # type: ignore[arg-type]

    assert "reference of its own" in refused.value.remedy


def test_a_sink_with_the_same_secret_is_named(shop: PostgresSource) -> None:
    sink = ("sink", {"connector.class": "JdbcSink", "connection.password": shop.config()["database.password"]})

    with pytest.raises(InvalidConnector, match="'sink' reads the same secret"):
        rotate_password(Cluster(runs(shop), sink), shop, source=NOBODY)  # type: ignore[arg-type]


def test_a_connector_of_the_role_that_carries_the_password_in_clear_is_named(shop: PostgresSource) -> None:
    literal = runs(replace(shop, name="literal"), database_password="sentinel")

    with pytest.raises(InvalidConnector, match="'literal' has its password in clear") as refused:
        rotate_password(Cluster(runs(shop), literal), shop, source=NOBODY)  # type: ignore[arg-type]

    assert "sentinel" not in str(refused.value)


@pytest.mark.parametrize("key", ["database_user", "database_hostname", "database_port", "database_password"])
def test_a_connector_that_runs_with_another_login_than_is_declared_is_named(shop: PostgresSource, key: str) -> None:
    with pytest.raises(InvalidConnector, match=f"'shop' runs with another {key.replace('_', '.')}"):
        rotate_password(Cluster(runs(shop, **{key: "7"})), shop, source=NOBODY)  # type: ignore[arg-type]


@pytest.mark.parametrize("in_cluster", [True, False])
def test_a_function_that_writes_one_secret_does_not_do_for_two(
    shop: PostgresSource, tmp_path: Path, *, in_cluster: bool
) -> None:
    two = write_secrets(tmp_path, "two", values={"password": "old"})["password"]
    other = replace(shop, name="other", password=two)
    cluster = Cluster(runs(shop), *([runs(other)] if in_cluster else []))
    written: list[Any] = []

    with pytest.raises(InvalidConnector, match="behind 2 references, and `write` writes one"):
        rotate_password(cluster, shop, source=NOBODY, others=[other], write=written.append)  # type: ignore[arg-type]

    assert written == []


def test_what_the_worker_cannot_use_anyway_is_left_as_it_is(shop: PostgresSource, tmp_path: Path) -> None:
    cluster = Cluster(runs(shop), problem="The connection attempt failed.")

    with pytest.raises(ConnectRejected, match="nothing was changed: The connection attempt failed"):
        rotate_password(cluster, shop, source=NOBODY)  # type: ignore[arg-type]

    assert (tmp_path / "shop.properties").read_text() == "password=old\n"
