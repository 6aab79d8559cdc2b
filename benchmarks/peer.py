"""Programs of other frameworks, each in a virtual environment of its own under build/peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from benchmarks.shop_log import PARTITIONS, ShopLog
from eventstore.kafka.admin import ensure_topics
from eventstore.topics import TopicSpec
from factfold.stack import ivy
from factfold.stack.artifacts import kafka_jars
from factfold.stack.java import require_java
from factfold.stack.versions import Coordinate, versions

PYEVENTSOURCING = "eventsourcing[postgres]==9.5.6"
_HERE = Path(__file__).parent / "peers"
_ENVIRONMENTS = Path("build/peers")


class Pyeventsourcing:
    """Its benchmark program on a database of its own."""

    name = "pyeventsourcing 9.5.6, default mode"

    def __init__(self, engine: sa.Engine) -> None:
        self._python = _environment("pyeventsourcing", PYEVENTSOURCING)
        self._database = f"peer_{uuid.uuid4().hex[:8]}"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{self._database}"')
        self._url = engine.url

    def rate(self, what: str, *numbers: float) -> float:
        """Run one measurement in a process of its own; its unit is a second's worth."""
        arguments = [str(self._python), str(_HERE / "pyeventsourcing.py"), what, *map(str, numbers)]
        done = subprocess.run(arguments, env=os.environ | self._settings(), check=True, capture_output=True, text=True)
        return float(json.loads(done.stdout)["rate"])

    def _settings(self) -> dict[str, str]:
        url = self._url
        return {
            "POSTGRES_DBNAME": self._database,
            "POSTGRES_HOST": str(url.host),
            "POSTGRES_PORT": str(url.port or 5432),
            "POSTGRES_USER": str(url.username),
            "POSTGRES_PASSWORD": str(url.password or ""),
        }


def _environment(name: str, requirement: str) -> Path:
    """The Python of an environment that has a package, made at the first use."""
    folder = _ENVIRONMENTS / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        sys.stderr.write(f"installing {requirement} for the comparison\n")
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", requirement], check=True)
        ready.touch()
    return python.absolute()


class KafkaStreams:
    """Its foreign-key join, two threads, at least once; jars of the broker's own version."""

    name = f"Kafka Streams {versions().kafka}, foreign-key join"

    def __init__(self) -> None:
        self._jars = [*kafka_jars(), *_streams_jars()]

    def rate(self, log: ShopLog, *, results: int) -> float:
        """Results a second of the join of both topics from their beginnings."""
        with TemporaryDirectory() as folder:
            output = f"{log.prefix}-joined"
            ensure_topics(log.settings, [TopicSpec(output, PARTITIONS, {})])
            arguments = [log.orders_topic, log.customers_topic, output, str(results), folder]
            servers = log.settings.kafka.bootstrap_servers
            path = os.pathsep.join(map(str, self._jars))
            command = [str(require_java().executable), "-cp", path, str(_HERE / "ForeignKeyJoin.java"), servers]
            told = _said([*command, *arguments])
        if told["results"] < results:
            raise RuntimeError(f"Kafka Streams gave {told['results']} of {results} results")
        return results / told["seconds"]


class QuixStreams:
    """Its as-of join: it has none by a foreign key, so it is given the orders keyed by their customers."""

    name = "Quix Streams 3.28.1, join_asof"

    def __init__(self) -> None:
        self._python = _environment("quixstreams", "quixstreams==3.28.1")

    def rate(self, log: ShopLog) -> float:
        """Events a second of both topics from their beginnings."""
        with TemporaryDirectory() as folder:
            orders, customers = log.by_customer()
            output = f"{log.prefix}-enriched"
            ensure_topics(log.settings, [TopicSpec(output, PARTITIONS, {})])
            arguments = [orders, customers, output, str(log.records), folder]
            told = _said([
                str(self._python), str(_HERE / "quix_asof.py"), log.settings.kafka.bootstrap_servers, *arguments
            ])  # fmt: skip
        return float(told["events"] / told["seconds"])


def _streams_jars() -> list[Path]:
    """Kafka Streams and its store, fetched at the first use."""
    folder = (_ENVIRONMENTS / "kafka-streams").absolute()
    if not (folder / "ready").exists():
        wanted = [f"org.apache.kafka:kafka-streams:{versions().kafka}", "org.rocksdb:rocksdbjni:10.1.3"]
        parsed = [Coordinate.parse(text) for text in wanted]
        ivy.retrieve(parsed, into=folder, java=require_java(), on_file=lambda: None)
        (folder / "ready").touch()
    return sorted((folder / "files").glob("*.jar"))


def _said(command: list[str]) -> dict[str, Any]:
    """The last line that a program prints, which is JSON."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))
