"""Programs of other frameworks, each in a virtual environment of its own under build/peers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import venv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from benchmarks.flight_log import AIRLINES, AIRPORTS, EVENTS, PLANES, FlightLog
from benchmarks.shop_log import PARTITIONS, ShopLog
from benchmarks.visit_log import CLICKS, VISITS, VisitLog
from eventstore import Settings
from eventstore.kafka.admin import ensure_topics
from eventstore.topics import TopicSpec
from factfold.stack.artifacts import ivy_files, kafka_jars
from factfold.stack.java import require_java
from factfold.stack.versions import Coordinate, versions

PYEVENTSOURCING = "eventsourcing[postgres]==9.5.6"
HERE = Path(__file__).parent / "peers"
_ENVIRONMENTS = Path("build/peers")
_STREAMS: dict[str, object] = {
    "auto.offset.reset": "earliest",
    "num.stream.threads": 2,
    "replication.factor": 1,
    "commit.interval.ms": 5_000,
}


class Pyeventsourcing:
    """Its benchmark program on a database of its own."""

    name = "pyeventsourcing 9.5.6, default mode"

    def __init__(self, engine: sa.Engine) -> None:
        self._python = installed("pyeventsourcing", PYEVENTSOURCING)
        self._database = f"peer_{uuid.uuid4().hex[:8]}"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{self._database}"')
        self._url = engine.url

    def rate(self, what: str, *numbers: float) -> float:
        """Run one measurement in a process of its own; its unit is a second's worth."""
        arguments = [str(self._python), str(HERE / "pyeventsourcing.py"), what, *map(str, numbers)]
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


def installed(name: str, requirement: str) -> Path:
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
    """Its foreign-key joins, two threads, at least once; jars of the broker's own version."""

    name = f"Kafka Streams {versions().kafka}"

    def __init__(self) -> None:
        self._jars = [*kafka_jars(), *_streams_jars()]

    def join_rate(self, log: ShopLog, *, results: int) -> float:
        """Results a second of one foreign-key join of orders and customers from their beginnings."""
        output = _output(log.settings, f"{log.prefix}-joined")
        with TemporaryDirectory() as folder:
            topics = (log.orders_topic, log.customers_topic, output)
            report = self._run(log.settings, "ForeignKeyJoin", Path(folder), *topics, results)
        if report["results"] < results:
            raise RuntimeError(f"Kafka Streams gave {report['results']} of {results} results")
        return float(results / report["seconds"])

    def view_rate(self, log: FlightLog, *, records: int, rows: int) -> float:
        """Records a second of `flight_details`, from the same topics as ours, until its last result."""
        output = _output(log.settings, f"details-{uuid.uuid4().hex[:8]}")
        with TemporaryDirectory() as folder:
            topics, schemas = (EVENTS, AIRLINES, PLANES, AIRPORTS, output), log.schemas_file(Path(folder))
            report = self._run(log.settings, "FlightDetails", Path(folder), *topics, schemas, records)
        if (report["read"], report["keys"]) != (records, rows):
            raise RuntimeError(
                f"Kafka Streams read {report['read']} of {records} records, {report['keys']} of {rows} rows"
            )
        return float(records / report["seconds"])

    def _run(self, settings: Settings, program: str, folder: Path, *arguments: object) -> dict[str, Any]:
        own = {
            "application.id": f"bench-{uuid.uuid4().hex[:8]}",
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "state.dir": folder / "state",
        }
        chosen = folder / "streams.properties"
        chosen.write_text("".join(f"{name}={value}\n" for name, value in (_STREAMS | own).items()))
        command = [str(require_java().executable), "-cp", os.pathsep.join(map(str, self._jars))]
        return _said([*command, str(HERE / f"{program}.java"), str(chosen), *map(str, arguments)])


class QuixStreams:
    """Its as-of join of the scheduled flights and their planes: it has none by a foreign key. And its windows."""

    name = "Quix Streams 3.28.1, join_asof with planes"
    windows_name = "Quix Streams 3.28.1"

    def __init__(self) -> None:
        self._python = installed("quixstreams", "quixstreams[avro]==3.28.1")

    def rate(self, log: FlightLog, *, records: int) -> float:
        """Records a second of both topics from their beginnings."""
        output = _output(log.settings, f"enriched-{uuid.uuid4().hex[:8]}")
        with TemporaryDirectory() as folder:
            arguments = [EVENTS, PLANES, output, log.schemas_file(Path(folder)), records, folder]
            servers = log.settings.kafka.bootstrap_servers
            report = _said([str(self._python), str(HERE / "quix_flights.py"), servers, *map(str, arguments)])
        return float(report["read"] / report["seconds"])

    def windows(self, log: VisitLog, kind: str, *, records: int) -> tuple[float, int]:
        """Records a second of a window or a join by time, from the beginnings of its topics, and how many results."""
        output = _output(log.settings, f"{kind}-{uuid.uuid4().hex[:8]}")
        with TemporaryDirectory() as folder:
            arguments = [kind, log.settings.kafka.bootstrap_servers, VISITS, CLICKS, output, records, folder]
            report = _said([str(self._python), str(HERE / "quix_windows.py"), *map(str, arguments)])
        return float(report["read"] / report["seconds"]), int(report["results"])


def _output(settings: Settings, topic: str) -> str:
    ensure_topics(settings, [TopicSpec(topic, PARTITIONS, {})])
    return topic


def _streams_jars() -> list[Path]:
    """Kafka Streams, its store, and Avro."""
    kafka = f"org.apache.kafka:kafka-streams:{versions().kafka}"
    return fetched("kafka-streams-avro", [kafka, "org.rocksdb:rocksdbjni:10.1.3", "org.apache.avro:avro:1.12.1"])


def fetched(name: str, coordinates: Sequence[str]) -> list[Path]:
    """The jars of a peer, fetched at the first use."""
    folder = (_ENVIRONMENTS / name).absolute()
    if not (folder / "ready").exists():
        parsed = [Coordinate.parse(text) for text in coordinates]
        ivy_files(parsed, into=folder, java=require_java(), on_file=lambda: None)
        (folder / "ready").touch()
    return sorted((folder / "files").glob("*.jar"))


def _said(command: list[str]) -> dict[str, Any]:
    """The last line that a program prints, which is JSON; what it wrote as errors is shown where it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr[-4000:])
        raise RuntimeError(f"{Path(command[0]).name} of the comparison failed with {done.returncode}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))
