"""One foreign-key join of two topics, by ours and by others: rebuild.*, incremental.rate.

Orders and customers lie in two topics as a connector leaves them. A rebuild reads, decodes, joins, loads state and view
into PostgreSQL and indexes them. Best of the runs, alternating; a new process and a new state each for the peers.

- `rebuild.kstreams.one_join`, `incremental.rate`: Kafka Streams' foreign-key join takes its key out of the text, parses
  no JSON, and writes its results into a topic. The second claim is the result rows a second of a live batch of changes
  of as many other orders.
- `rebuild.limit`: Spark reads the same records into nothing, then COPY writes the same rows into unlogged tables, and
  the same indexes.
- `rebuild.flink`, `rebuild.pathway`: the join alone, upserted into a table with a primary key in the same database.
  Their time begins when they are ready to read. They keep no state in the database, and all their rows are compared.
- `rebuild.cold`: the whole command from the shell to the view that serves, against the quicker of Flink SQL and Kafka
  Streams, from the start of their processes.

What it does not show: a state that outgrows memory, more cores, brokers and databases on machines of their own.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import sqlalchemy as sa
import typer

from benchmarks.join_tables import FlinkTable, OurCommand, Pathway, digest, limit_seconds
from benchmarks.machine import at_least, at_most, write
from benchmarks.peer import KafkaStreams
from benchmarks.shop_log import ShopLog
from eventstore import Settings
from factfold.stack import LocalStack, spark_jars
from projections import Environment, open_runner, rebuild
from sample_app.road import database_url
from sample_app.story import Story


@dataclass(frozen=True)
class Run:
    """Records a second of each rebuild, result rows a second of live changes, seconds of whole processes.

    ``seconds`` are those of the live batch, by step.
    """

    ours: float
    kafka_streams: float
    flink: float
    pathway: float
    limit: float
    live: float
    results: float
    cold: float
    cold_flink: float
    cold_streams: float
    seconds: Mapping[str, float]


@dataclass
class Bench:
    """Both sides of the comparison, on the same servers."""

    story: Story
    environment: Environment
    views_url: str
    folder: Path
    streams: KafkaStreams = field(default_factory=KafkaStreams)
    flink: FlinkTable = field(default_factory=FlinkTable)
    pathway: Pathway = field(default_factory=Pathway)

    def measure(self, log: ShopLog, *, orders: int, changes: int) -> Run:
        """One run of everything; RuntimeError where a peer has other rows."""
        records, story = log.records, self.story
        with story.step("rebuild"):
            ours = rebuild(self.environment, log.group).records_per_second
        right = digest(sa.create_engine(self.views_url), log.group.views[0].name)
        with story.step("Kafka Streams"):
            begun = time.perf_counter()
            results = self.streams.join_rate(log, results=orders)
            cold_streams = time.perf_counter() - begun
        filled = []
        for peer in (self.flink, self.pathway):
            with story.step(peer.name):
                filled.append(peer.fill(log, self.views_url, rows=orders))
            if filled[-1].digest != right:
                raise RuntimeError(f"{peer.name} has other rows: {filled[-1].digest}, not {right}")
        with story.step("COPY alone"):
            limit = limit_seconds(self.environment, log, self.folder)
        with story.step("the command, cold"):
            cold = OurCommand().seconds(log, self.views_url)
        with story.step("live batch"):
            live, seconds = _live(self.environment, log, changes)
        flink, pathway = (records / one.seconds for one in filled)
        run = Run(
            ours, results * records / orders, flink, pathway, records / limit, live, results,
            cold, filled[0].whole, cold_streams, seconds,
        )  # fmt: skip
        story.say(str(run))
        return run


def main(
    orders: Annotated[int, typer.Option(help="Orders in their topic.")] = 300_000,
    customers: Annotated[int, typer.Option(help="Customers in theirs.")] = 20_000,
    changes: Annotated[int, typer.Option(help="Changes of the live batch.")] = 50_000,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
) -> None:
    """Measure and write build/bench/joins.json."""
    story, measured = Story("rebuild.*, incremental.rate"), []
    with LocalStack("bench", ephemeral=True) as servers, TemporaryDirectory() as folder:
        settings = Settings.for_broker(servers.info.bootstrap_servers)
        views_url = database_url(servers.info, "bench")
        with Environment.open(settings, views_url=views_url, jars=spark_jars(), memory="3g") as environment:
            bench = Bench(story, environment, views_url, Path(folder))
            for _ in range(runs):
                log = ShopLog(settings, customers)
                with story.step("records"):
                    log.insert(orders)
                measured.append(bench.measure(log, orders=orders, changes=changes))
    _report(story, measured, records=orders + customers, changes=changes)


def _live(environment: Environment, log: ShopLog, changes: int) -> tuple[float, Mapping[str, float]]:
    """Result rows a second of a batch of changes, after one that makes the plans; and its seconds by step."""
    with open_runner(environment, log.group) as runner:
        log.update(changes)
        runner.run_once(max_records=2 * changes)
        log.update(changes)
        begun = time.perf_counter()
        report = runner.run_once(max_records=2 * changes)
        seconds = time.perf_counter() - begun
    if report is None or report.records < changes:
        raise RuntimeError(f"the batch had not all of the {changes} changes: {report}")
    return report.upserts / seconds, {step: round(took, 3) for step, took in report.seconds.items()}


def _report(story: Story, measured: list[Run], *, records: int, changes: int) -> None:
    def best(name: str) -> float:
        chosen: float = max(getattr(run, name) for run in measured)
        return chosen

    claims = [
        at_least(
            id, ours=best(ours), other=best(other), other_name=name, unit=unit, n=n, runs=len(measured), target=target
        )
        for id, ours, other, name, unit, n, target in (
            ("rebuild.kstreams.one_join", "ours", "kafka_streams", KafkaStreams.name, "records/s", records, 8.0),
            ("rebuild.flink", "ours", "flink", FlinkTable.name, "records/s", records, 2.0),
            ("rebuild.pathway", "ours", "pathway", Pathway.name, "records/s", records, 1.2),
            ("rebuild.limit", "ours", "limit", "Spark's scan, COPY and indexes alone", "records/s", records, 0.6),
            ("incremental.rate", "live", "results", KafkaStreams.name, "result rows/s", changes, 3.0),
        )
    ]
    cold = {side: min(getattr(run, side) for run in measured) for side in ("cold", "cold_flink", "cold_streams")}
    quicker = min(cold["cold_flink"], cold["cold_streams"])
    claims.append(
        at_most(
            "rebuild.cold", ours=cold["cold"], other=quicker, other_name="the quicker of Flink SQL and Kafka Streams",
            unit="s", n=records, runs=len(measured), target=0.8,
        )
    )  # fmt: skip
    path = write("joins", claims, all_runs=[dataclasses.asdict(run) for run in measured])
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}: see {path}")


if __name__ == "__main__":
    typer.run(main)
