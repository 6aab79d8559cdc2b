"""Records what the MySQL connector sends: `python -m tests.recordings.record_mysql` writes `mysql.json.gz` anew.

On a stack of its own, with Debian's MariaDB as the server (tests.integration.mariadb says what that takes) and one
connector for each encoding. The file has, for each, the records of each topic in their order, as [key, value] texts.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any, Final

from cdc import ConnectClient, JsonWithSchemas, MySqlSource, PlainJson, apply_connector, write_secrets
from cdc.connectors.encodings import Encoding
from eventstore.errors import TopicMissing
from eventstore.kafka.consumer import read_range
from eventstore.settings import Settings
from eventstore.topics import TopicRecord
from factfold.stack import LocalStack, StackInfo
from tests.integration.mariadb import mariadb, mysql_worker
from tests.recordings import mysql_types
from tests.waiting import wait_until

OUTPUT: Final = Path(__file__).with_name("mysql.json.gz")
TABLES: Final = (f"{mysql_types.DATABASE}.{mysql_types.TABLE}", f"{mysql_types.DATABASE}.moments")
_GRANTS: Final = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"
_PASSWORD: Final = "recorded"
ENCODINGS: Final[dict[str, tuple[Encoding, dict[str, str]]]] = {
    "plain": (PlainJson(), {}),
    "schemas-adaptive": (
        JsonWithSchemas(times="adaptive_time_microseconds", decimals="precise"),
        {"bigint.unsigned.handling.mode": "precise"},
    ),
    "schemas-microseconds": (JsonWithSchemas(times="microseconds", decimals="double"), {}),
    "schemas-nanoseconds": (JsonWithSchemas(), {"time.precision.mode": "nanoseconds"}),
    "schemas-connect": (JsonWithSchemas(times="connect", decimals="precise"), {}),
    "schemas-isostring": (JsonWithSchemas(), {}),
}


def record() -> None:
    """Record everything; takes about a minute."""
    with (
        LocalStack("mysql-recorder", ephemeral=True) as stack,
        tempfile.TemporaryDirectory() as folder,
        mariadb(Path(folder)) as server,
        mysql_worker(stack.info, Path(folder)) as url,
        ConnectClient(url) as client,
    ):
        server.run(f"CREATE USER cdc@'%' IDENTIFIED BY '{_PASSWORD}'; GRANT {_GRANTS} ON *.* TO cdc@'%';")
        server.run(mysql_types.create())
        server.run(mysql_types.insert(1), database=mysql_types.DATABASE)
        sources = [_source(stack.info, server.port, name) for name in ENCODINGS]
        for source in sources:
            apply_connector(client, source)
        for statements in mysql_types.CHANGES:
            server.run(statements, database=mysql_types.DATABASE)
        wait_until(lambda: all(_ended(stack.info, source) for source in sources))
        recorded = {source.name: _recorded(stack.info, source) for source in sources}
    OUTPUT.write_bytes(gzip.compress(json.dumps(recorded, ensure_ascii=False, indent=0).encode(), mtime=0))


def _source(info: StackInfo, port: int, name: str) -> MySqlSource:
    encoding, unchecked = ENCODINGS[name]
    return MySqlSource(
        name=name,
        host="127.0.0.1",
        port=port,
        user="cdc",
        password=write_secrets(info.secrets_dir, "recorder", values={"password": _PASSWORD})["password"],
        topic_prefix=name,
        tables=TABLES,
        # Not compacted, so that the record of a truncation, which has no key, is taken.
        history=TABLES,
        partitions=1,
        history_bootstrap_servers=info.bootstrap_servers,
        encoding=encoding,
        extra={"skipped.operations": "none"},
        unchecked=unchecked,
    )


def _ended(info: StackInfo, source: MySqlSource) -> bool:
    last = [record.key or b"" for record in _records(info, source.topic(TABLES[0]))[-1:]]
    return any(f'"id":{mysql_types.LAST_KEY}'.encode() in key for key in last)


def _recorded(info: StackInfo, source: MySqlSource) -> dict[str, Any]:
    topics = {table: _records(info, source.topic(table)) for table in TABLES}
    told = {table: [[_text(r.key), _text(r.value)] for r in records] for table, records in topics.items()}
    return {"schemas": {}, "topics": told}


def _records(info: StackInfo, topic: str) -> list[TopicRecord]:
    try:
        return list(read_range(Settings.for_broker(info.bootstrap_servers), topic))
    except TopicMissing:
        return []


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


if __name__ == "__main__":
    record()
