"""The join of orders and customers in a table of PostgreSQL: by Flink SQL, by Pathway, by our command, by COPY alone.

A time ends when the table has all rows, looked for five times a second. Rows are compared by a hash of all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import psycopg
import sqlalchemy as sa

from benchmarks.flink_sql import VERSION, FlinkSql, definitions
from benchmarks.peer import HERE, installed
from benchmarks.shop_log import JOINED, ShopLog
from projections import Environment
from projections.spark.reading.records import whole_log
from projections.spark.views.view_functions import view_columns
from sample_app.services import of_broker

PATHWAY: Final = "0.33.0"
_LOOK_SECONDS, _WITHIN, _THREADS = 0.2, 300.0, 2
_HASH = "SELECT count(*), sum(hashtextextended(concat_ws('|', {0}, amount, city), 0)) FROM {1}"


@dataclass(frozen=True)
class Filled:
    """Seconds from the beginning of the work, and from the start of the process; the hash of the rows."""

    seconds: float
    whole: float
    digest: str


class Destination:
    """A table for the rows of one peer, empty and with a primary key."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = sa.make_url(url), name
        self.engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        self._run(f"DROP TABLE IF EXISTS {name}")
        self._run(f"CREATE TABLE {name} (order_id bigint PRIMARY KEY, amount bigint, city text)")

    def _run(self, statement: str) -> None:
        with self.engine.connect() as connection:
            connection.execute(sa.text(statement))

    def wait(self, rows: int, process: subprocess.Popen[str]) -> float:
        """Wait until so many rows are there, and return the time; RuntimeError if the process ends before."""
        until, count = time.monotonic() + _WITHIN, sa.text(f"SELECT count(*) FROM {self.name}")  # noqa: S608
        with self.engine.connect() as connection:
            while connection.scalar(count) != rows:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{self.name} has {connection.scalar(count)} of {rows} rows")
                time.sleep(_LOOK_SECONDS)
        return time.perf_counter()

    def digest(self) -> str:
        """The hash of the rows, in whatever order they are."""
        return digest(self.engine, self.name, key="order_id")


def digest(engine: sa.Engine, relation: str, *, key: str = "id") -> str:
    """The number of a relation's rows and the sum of their hashes."""
    with engine.connect() as connection:
        return "{} {}".format(*connection.execute(sa.text(_HASH.format(key, relation))).one())


class FlinkTable:
    """Its JDBC sink, which upserts by the primary key; a cluster of its own process."""

    name = f"Flink SQL {VERSION}, upserts by JDBC into the same database"

    def fill(self, log: ShopLog, url: str, *, rows: int) -> Filled:
        """Read both topics from their beginnings until the table has all rows."""
        table, begun = Destination(url, "flink_joined"), time.perf_counter()
        with FlinkSql(log.settings.kafka.bootstrap_servers, ["flink-jdbc-jars.txt"]) as flink:
            for name, one in log.tables.items():
                flink.tell(*definitions(name, one, log.settings.kafka.bootstrap_servers))
            flink.tell(self._sink(table))
            started = flink.insert(f"INSERT INTO joined {JOINED}")
            done = table.wait(rows, flink.process)
        return Filled(done - started, done - begun, table.digest())

    def _sink(self, table: Destination) -> str:
        url = table.url
        options = {
            "connector": "jdbc",
            "url": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}?reWriteBatchedInserts=true",
            "table-name": table.name,
            "username": url.username,
            "password": url.password or "",
            "sink.buffer-flush.max-rows": "5000",
        }
        chosen = ", ".join(f"'{option}' = '{value}'" for option, value in options.items())
        columns = "order_id BIGINT, amount BIGINT, city STRING, PRIMARY KEY (order_id) NOT ENFORCED"
        return f"CREATE TEMPORARY TABLE joined ({columns}) WITH ({chosen})"


class Pathway:
    """Its streaming mode over JSON, with a sink that keeps the last state of each row."""

    name = f"Pathway {PATHWAY}, a snapshot in the same database"

    def __init__(self) -> None:
        self._python = installed("pathway", f"pathway=={PATHWAY}")

    def fill(self, log: ShopLog, url: str, *, rows: int) -> Filled:
        """Read both topics from their beginnings until the table has all rows."""
        table = Destination(url, "pathway_joined")
        given = {
            "brokers": log.settings.kafka.bootstrap_servers, "orders": log.orders_topic, "table": table.name,
            "customers": log.customers_topic, "postgres": table.url.translate_connect_args(username="user"),
        }  # fmt: skip
        begun = time.perf_counter()
        with _process([str(self._python), str(HERE / "pathway_join.py"), json.dumps(given)]) as (process, said):
            said.readline()  # it is about to read
            started = time.perf_counter()
            done = table.wait(rows, process)
        return Filled(done - started, done - begun, table.digest())


class OurCommand:
    """`factfold projections rebuild` in a new process, from the shell until its view serves."""

    name = "factfold projections rebuild"

    def seconds(self, log: ShopLog, url: str) -> float:
        """How long the command takes."""
        own = {
            "FACTFOLD_VIEWS_URL": url,
            **of_broker(log.settings),
            "FACTFOLD_BENCH_LOG": log.prefix,
        }
        command = [sys.executable, "-m", "factfold", "projections", "rebuild", "benchmarks.cold_group:group"]
        begun = time.perf_counter()
        subprocess.run(command, env=os.environ | own, check=True, capture_output=True)
        return time.perf_counter() - begun


@contextmanager
def _process(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A peer's process until the block ends, and what it says."""
    process = subprocess.Popen(
        command, env=os.environ | {"PATHWAY_THREADS": str(_THREADS)}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.wait(60)


def limit_seconds(environment: Environment, log: ShopLog, folder: Path) -> float:
    """What a rebuild cannot go below: Spark reads the records, COPY writes the same rows, and the same indexes.

    The rows come from files that are written before. Tables are copied side by side, and not logged.
    """
    group, store = log.group, environment.store
    layout = store.layout(group, store.serving_state(group.name).run, view_columns(environment.spark, group))
    tables = [
        *(table.state.name for table in layout.tables.values()),
        *(view.view.name for view in layout.views.values()),
    ]
    limit = _Limit(environment.store.uri, layout.name, folder)  # type: ignore[attr-defined]
    for table in tables:
        limit.take(table)
    begun = time.perf_counter()
    raw = environment.log.scan(environment.spark, whole_log(environment, group))
    raw.select("key", "value").write.format("noop").mode("overwrite").save()
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(limit.copy, tables))
    return time.perf_counter() - begun


class _Limit:
    """The rows of a generation's tables, in files and copied from them into the schema ``bench_limit``."""

    def __init__(self, uri: str, schema: str, folder: Path) -> None:
        self._uri, self._schema, self._folder = uri, schema, folder
        with psycopg.connect(uri) as connection:
            connection.execute("DROP SCHEMA IF EXISTS bench_limit CASCADE")
            connection.execute("CREATE SCHEMA bench_limit")

    def take(self, table: str) -> None:
        """Write a table's rows to a file, and make an empty table like it."""
        source = f'"{self._schema}"."{table}"'
        with psycopg.connect(self._uri) as connection, (self._folder / table).open("wb") as file:
            connection.execute(f'CREATE UNLOGGED TABLE bench_limit."{table}" (LIKE {source})')  # type: ignore[call-overload]
            with connection.cursor().copy(f"COPY {source} TO STDOUT (FORMAT binary)") as rows:  # type: ignore[call-overload]
                for part in rows:
                    file.write(part)

    def copy(self, table: str) -> None:
        """Copy a file's rows into its table and index them."""
        with psycopg.connect(self._uri) as connection:
            with connection.cursor().copy(f'COPY bench_limit."{table}" FROM STDIN (FORMAT binary)') as copy:  # type: ignore[call-overload]
                with (self._folder / table).open("rb") as file:
                    while part := file.read(1 << 20):
                        copy.write(part)
            for index in self._indexes(connection, table):
                connection.execute(index)  # type: ignore[call-overload]

    def _indexes(self, connection: psycopg.Connection, table: str) -> list[str]:
        found = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = %s", (self._schema, table)
        )
        return [definition.replace(f"{self._schema}.", "bench_limit.") for (definition,) in found]
