"""Tables of a binary log captured by our declaration: MySQL's connector on Debian's MariaDB, where it is."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc import ConnectClient, MySqlSource, apply_connector, delete_connector, write_secrets
from eventstore.topics import TopicRecord
from tests.connectors import require_shipped_list
from tests.integration.mariadb import MariaDb, mariadb, mysql_worker, require_mariadb

if TYPE_CHECKING:
    from factfold.stack import LocalStack

PASSWORD = "of the connector"
GRANTS = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A server with a table of items and a user for connectors."""
    require_mariadb()
    with mariadb(tmp_path_factory.mktemp("mariadb")) as running:
        running.run(
            f"CREATE USER cdc@'%' IDENTIFIED BY '{PASSWORD}'; GRANT {GRANTS} ON *.* TO cdc@'%'; CREATE DATABASE shop;"
            "CREATE TABLE shop.items (id int PRIMARY KEY, name varchar(20), price decimal(8,2));"
            "INSERT INTO shop.items VALUES (1, 'nail', 1.50);"
        )
        yield running


@pytest.fixture(scope="module")
def worker(server: MariaDb, stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectClient]:
    """A client of a worker that has the connector."""
    folder: Path = tmp_path_factory.mktemp("worker")
    with mysql_worker(stack.info, folder) as url, ConnectClient(url) as client:
        yield client


@pytest.fixture(scope="module")
def source(server: MariaDb, worker: ConnectClient, stack: LocalStack) -> MySqlSource:
    """A source on the table, in its second life; not applied."""
    name = f"t{uuid.uuid4().hex[:10]}"
    references = write_secrets(stack.info.secrets_dir, name, values={"password": PASSWORD})
    return MySqlSource(
        name=name,
        host="127.0.0.1",
        port=server.port,
        user="cdc",
        password=references["password"],
        topic_prefix=name,
        tables=("shop.items",),
        history_bootstrap_servers=stack.info.bootstrap_servers,
        epoch=1,
    )


def test_rows_changed_keys_and_deletions_arrive_and_the_snapshot_before_them(worker, server, source, records_of):
    require_shipped_list(worker, source)
    assert apply_connector(worker, source).created
    assert apply_connector(worker, source).was_no_op
    server.run("INSERT INTO items VALUES (2, 'bolt', 2.25); UPDATE items SET id = 3 WHERE id = 2;", database="shop")
    server.run("DELETE FROM items WHERE id = 3;", database="shop")

    # A changed key is a deletion and a creation; a deletion has its tombstone.
    records = records_of(source.topic("shop.items"), count=7)

    assert _of_key(records, 1) == [("r", None, {"id": 1, "name": "nail", "price": "1.50"}, "1")]
    bolt = {"id": 2, "name": "bolt", "price": "2.25"}
    assert _of_key(records, 2) == [("c", None, bolt, "1"), ("d", bolt, None, "1"), None]
    assert [change and change[0] for change in _of_key(records, 3)] == ["c", "d", None]
    assert all(offset.streamed for offset in worker.offsets(source.name))
    assert delete_connector(worker, source.name, forget=True)


def _of_key(records: list[TopicRecord], key: int) -> list[Any]:
    found = [record.value for record in records if json.loads(record.key or b"{}") == {"id": key}]
    return [None if value is None else _told(json.loads(value)) for value in found]


def _told(change: Any) -> tuple[Any, ...]:
    return change["op"], change["before"], change["after"], change["factfold_epoch"]
