"""The queries of TPC-H and Nexmark as live views, against Flink SQL over the same topics.

Each query has topics of its own, written once in the form of Debezium's connectors, with four partitions. The tables
are those of `benchmarks.queries`, and both sides must have DuckDB's answer after each of three batches. The third is
measured: the seconds from the moment its records are in the topics until the answer is right.

- Flink polls. It reads a batch first, while Spark is idle, and already while the batch is written. Its time ends with
  the last row of the changelog that made the answer right. The process of the cluster prints that row. It has two
  subtasks, its state in the heap, no mini-batches and no checkpoints. A batch that changes no answer has no time.
- Factfold reads it then, while Flink waits for records. Its time is that of a live batch, whose views are in SQLite.

A refusal or another answer of Flink is a result, with its reason. What the program does not show: more rows, more
cores, a table of Flink's answers that can be queried, its checkpoints, and how long Factfold waits before a batch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.flink_sql import DIALECT, FlinkSql, Refused, of_flink
from benchmarks.machine import write
from benchmarks.shop_log import PARTITIONS
from eventstore import Settings
from eventstore.kafka.admin import ensure_topics
from eventstore.kafka.producer import OutgoingRecord, RecordProducer
from eventstore.topics import changelog_topic
from factfold.stack import LocalStack, spark_jars
from projections import explain, open_session
from projections.spark.reading.kafka_source import KafkaLog
from projections.spark.session import end_session, small_batch_session
from projections.stores.sqlite import SqliteTableStore
from projections.testing.memory_log import MemoryLog
from sample_app.story import Story
from tests.conformance.sql_suites import InMemory, LiveQueries, answers, of_duckdb, texts
from tests.conformance.test_sql_suites import SEEDS, TOYS
from tests.conformance.toy_tables import Change, Play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 3  # the last one is measured


class Captured(MemoryLog):
    """Records of change events with the row before, as of a table with full replica identity: Flink requires it."""

    def __init__(self) -> None:
        super().__init__()
        self.records_to_send: list[OutgoingRecord] = []
        self._rows: dict[tuple[str, bytes | None], Any] = {}

    def append(self, topic: str, key: bytes | None, value: bytes | None, **_: Any) -> int:
        """Keep a record until it is sent."""
        if value is not None:
            change = json.loads(value)
            before = self._rows.get((topic, key))
            self._rows[topic, key] = change["after"]
            op = change["op"] if before else "c"
            value = json.dumps(change | {"op": op, "before": before}).encode()
        self.records_to_send.append(OutgoingRecord(topic=topic, key=key, value=value))
        return len(self.records_to_send)


class TopicChanges(InMemory):
    """The changes of a play in Kafka's topics."""

    def __init__(self, settings: Settings, play: Play) -> None:
        self._captured = Captured()
        super().__init__(self._captured)
        self.log = KafkaLog(settings)
        self._producer = RecordProducer(settings)
        topics = [toy.table.topic for toy in play.toys.values()]
        ensure_topics(settings, [changelog_topic(topic, partitions=PARTITIONS) for topic in topics])

    def write(self, changes: Iterable[Change]) -> None:
        """Send changes, and return when the broker has them."""
        super().write(changes)
        self._producer.send(self._captured.records_to_send)
        self._captured.records_to_send.clear()


@dataclasses.dataclass
class Comparison:
    """One query of both sides."""

    settings: Settings
    spark: SparkSession
    flink: FlinkSql
    folder: Path

    def of(self, suite: str, name: str, text: str) -> dict[str, Any]:
        """The seconds of each batch, and the reason where Flink has none."""
        toys = {
            table: dataclasses.replace(toy, table=dataclasses.replace(toy.table, topic=f"{name}.{table}"))
            for table, toy in TOYS[suite]().items()
        }
        play, store = Play(toys, SEEDS[suite]), SqliteTableStore(self.folder / f"{name}.db")
        store.prepare()
        changes = TopicChanges(self.settings, play)
        with LiveQueries(self.spark, name, {name: text}, play, store, changes) as live:
            peer = _Peer(self.flink, play, name, text)
            seconds = [_seconds(live, peer) for _ in range(BATCHES)]
            peer.stop()
            if wrong := live.wrong():
                raise RuntimeError(f"another answer than DuckDB's: {wrong}")
            stages = len(explain(store, live.group, name))
        store.close()
        changed = list(DIALECT.get(name, ()))
        return {"query": name, "stages": stages, "seconds": seconds, "flink": peer.seconds, "reason": peer.reason,
                "flink_text": peer.text, "changed": changed}  # fmt: skip


class _Peer:
    """A query on Flink, until it has no right answer."""

    def __init__(self, flink: FlinkSql, play: Play, name: str, text: str) -> None:
        self._flink, self._play, self._name, self._duckdb = flink, play, name, of_duckdb(name, text)
        self.text, self.reason = of_flink(name, text), ""
        self.seconds: list[float | None] = []
        flink.start(self.text, {table: toy.table for table, toy in play.toys.items()})
        self._answered()

    def batch(self, written: float) -> None:
        """Wait for the answer to what was written."""
        if not self.reason:
            last = self._answered()
            self.seconds.append(None if last is None else round(last - written, 3))

    def stop(self) -> None:
        """End the query."""
        self._flink.stop()

    def _answered(self) -> float | None:
        try:
            return self._flink.answered(answers(self._play, {self._name: self._duckdb})[self._name])
        except Refused as refused:
            self.reason = str(refused)
            return None


def main(only: Annotated[str, typer.Option(help="Names of queries, by default all.")] = "") -> None:
    """Measure and write build/bench/flink_queries.json."""
    story, measured = Story("TPC-H and Nexmark, against Flink SQL"), []
    with LocalStack("bench", ephemeral=True) as servers, tempfile.TemporaryDirectory() as folder:
        brokers = servers.info.bootstrap_servers
        spark = open_session(spark_jars(), memory="1g")
        with FlinkSql(brokers) as flink:
            both = Comparison(Settings.for_broker(brokers), small_batch_session(spark), flink, Path(folder))
            for suite, name, text in _queries(only.split()):
                with story.step(name):
                    measured.append(both.of(suite, name, text))
                story.say(f"{measured[-1]['seconds']}, Flink {measured[-1]['flink']} {measured[-1]['reason'][:200]}")
                path = write("flink_queries", [], peer=FlinkSql.name, load=os.getloadavg(), queries=measured)
        end_session(spark)
    story.say(f"{len(measured)} queries: see {path}")


def _queries(only: list[str]) -> Iterator[tuple[str, str, str]]:
    for suite in TOYS:
        for name, text in texts(suite).items():
            if not only or name in only:
                yield suite, name, text


def _seconds(live: LiveQueries, peer: _Peer) -> float:
    live.write()
    peer.batch(time.time())
    begun = time.perf_counter()
    live.catch_up()
    return round(time.perf_counter() - begun, 3)


if __name__ == "__main__":
    typer.run(main)
