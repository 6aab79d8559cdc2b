"""incremental.rate, rebuild.kstreams.one_join: one foreign-key join of two topics, by Kafka Streams and ours.

Orders and customers lie in two topics as a connector leaves them. A rebuild reads, decodes, joins, loads state and view
into PostgreSQL and indexes them; Kafka Streams' foreign-key join takes its key out of the text, parses no JSON, and
writes its results into a topic. `incremental.rate` is the result rows a second of a live batch of changes of as many
other orders, against the results a second of Kafka Streams. Best of the runs, alternating; a new process and a new
state each for Kafka Streams. What it does not show: a state that outgrows memory, more cores, brokers and databases on
machines of their own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from benchmarks.machine import at_least, write
from benchmarks.peer import KafkaStreams
from benchmarks.shop_log import ShopLog
from eventstore import Settings
from factfold.stack import LocalStack, spark_jars
from projections import Environment, open_runner, rebuild
from sample_app.road import database_url
from sample_app.story import Story


@dataclass(frozen=True)
class Run:
    """Records a second of the rebuild and of Kafka Streams; result rows a second of live changes and of its join.

    ``seconds`` are those of the live batch, by step.
    """

    ours: float
    kafka_streams: float
    live: float
    results: float
    seconds: Mapping[str, float]


def main(
    orders: Annotated[int, typer.Option(help="Orders in their topic.")] = 300_000,
    customers: Annotated[int, typer.Option(help="Customers in theirs.")] = 20_000,
    changes: Annotated[int, typer.Option(help="Changes of the live batch.")] = 50_000,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
) -> None:
    """Measure and write build/bench/joins.json."""
    story = Story("incremental.rate, rebuild.kstreams.one_join")
    streams = KafkaStreams()
    measured = []
    with LocalStack("bench", ephemeral=True) as servers:
        settings = Settings.for_broker(servers.info.bootstrap_servers)
        views_url = database_url(servers.info, "bench")
        with Environment.open(settings, views_url=views_url, jars=spark_jars(), memory="3g") as environment:
            for _ in range(runs):
                log = ShopLog(settings, customers)
                with story.step("records"):
                    log.insert(orders)
                measured.append(_measure(story, environment, log, streams, orders=orders, changes=changes))
    _report(story, measured, records=orders + customers, changes=changes)


def _measure(
    story: Story, environment: Environment, log: ShopLog, streams: KafkaStreams, *, orders: int, changes: int
) -> Run:  # fmt: skip
    records = log.records
    with story.step("rebuild"):
        ours = rebuild(environment, log.group).records_per_second
    with story.step("Kafka Streams"):
        results = streams.join_rate(log, results=orders)
    with story.step("live batch"):
        live, seconds = _live(environment, log, changes)
    run = Run(ours, results * records / orders, live, results, seconds)
    story.say(str(run))
    return run


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
    best = {name: max(getattr(run, name) for run in measured) for name in ("ours", "kafka_streams", "live", "results")}
    claims = [
        at_least(
            id, ours=best[ours], other=best[other], other_name=name, unit=unit, n=n, runs=len(measured), target=target
        )
        for id, ours, other, name, unit, n, target in (
            ("rebuild.kstreams.one_join", "ours", "kafka_streams", KafkaStreams.name, "records/s", records, 8.0),
            ("incremental.rate", "live", "results", KafkaStreams.name, "result rows/s", changes, 3.0),
        )
    ]
    path = write("joins", claims, batches=[dict(run.seconds) for run in measured])
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}: see {path}")


if __name__ == "__main__":
    typer.run(main)
