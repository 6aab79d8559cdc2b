"""rebuild.archive: the rebuild of flight_details from an archive of its topics against the same from Kafka.

Both are whole rebuilds: decoded, folded, joined, loaded into PostgreSQL, indexed, analysed. They differ in where the
records come from; so beside the claim stand the rates of reading alone and of reading, decoding and folding the events,
both into nothing: what the archive wins, and what is left to win once reading costs little. Best of the runs,
alternating. Archiving itself is timed once, and the size of its files told. What it does not show: an object store, a
broker on a machine of its own, more cores.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from benchmarks.machine import at_least, write
from factfold.stack import LocalStack, delta_jars, spark_jars
from projections import Archiver, Environment, rebuild
from projections.log import OffsetRange, RecordLog
from projections.rebuilding import RebuildReport
from projections.spark.archive.delta_archive import DeltaArchive, archived_log
from projections.spark.inputs import Reduction
from projections.spark.kafka_source import KafkaLog
from projections.tables import EventTable
from projections.whole_log import whole_log
from sample_app.flights.demo import append_flights, write_tables
from sample_app.flights.flight import Flight
from sample_app.flights.model import Base
from sample_app.flights.source import read_flights
from sample_app.flights.view import flight_views
from sample_app.road import lay_road
from sample_app.story import Story

TARGET = 5.0


@dataclass(frozen=True)
class Run:
    """One rebuild, and how many records a second the same source gives into nothing, and events a second folded."""

    scan: float
    fold: float
    report: RebuildReport


def main(
    flights: Annotated[int | None, typer.Option(help="How many flights; all by default.")] = None,
    runs: Annotated[int, typer.Option(help="Alternating runs; the best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Keep the data in this stack and use it again.")] = None,
) -> None:
    """Measure and write build/bench/archive.json."""
    story = Story("rebuild.archive")
    with LocalStack(stack or "bench", ephemeral=stack is None) as servers, TemporaryDirectory() as folder:
        road = lay_road(servers.info, "flights", aggregates=[Flight], tables=Base.metadata)
        if not any(True for _ in road.store.read_all(limit=1)):
            write_tables(road)
            append_flights(story, road, read_flights(flights), text="events appended")
        road.wait_until_captured()
        jars = [*spark_jars(), *delta_jars()]
        kafka = KafkaLog(road.settings)
        with Environment.open(road.settings, views_url=road.views_url, jars=jars, memory="3g") as environment:
            archiving = _archive(story, environment, kafka, Path(folder) / "archive")
            archived = archived_log(environment.spark, kafka, Path(folder) / "archive")
            pairs = [(_measure(story, environment, archived), _measure(story, environment, kafka)) for _ in range(runs)]
    _report(story, pairs, archiving)


def _archive(story: Story, environment: Environment, kafka: KafkaLog, folder: Path) -> dict[str, float]:
    """Archive all topics; returns offsets a second and the bytes of the files."""
    archiver = Archiver(kafka, DeltaArchive.open(environment.spark, folder))
    begun = time.perf_counter()
    with story.step("archive"):
        offsets = archiver.catch_up(flight_views.topics)
    seconds = time.perf_counter() - begun
    size = sum(archiver.archive.table(topic).files()[1] for topic in flight_views.topics)
    story.say(f"archived {offsets / seconds:,.0f} offsets/s, {size / 1e6:,.1f} MB")
    return {"offsets_per_second": round(offsets / seconds), "bytes": size}


def _measure(story: Story, environment: Environment, log: RecordLog) -> Run:
    name = type(log).__name__
    reading = dataclasses.replace(environment, log=log)
    offsets = whole_log(reading, flight_views)
    with story.step(f"{name}: scan"):
        begun = time.perf_counter()
        log.scan(environment.spark, offsets).select("key", "value").write.format("noop").mode("overwrite").save()
        scan = offsets.records / (time.perf_counter() - begun)
    with story.step(f"{name}: fold"):
        fold = _fold(reading, offsets)
    with story.step(f"{name}: rebuild"):
        report = rebuild(reading, flight_views)
    rate = report.records_per_second
    story.say(f"{name}: scan {scan:,.0f}, fold {fold:,.0f}, rebuild {rate:,.0f} records/s {report.seconds}")
    return Run(scan, fold, report)


def _fold(reading: Environment, offsets: OffsetRange) -> float:
    """Events a second, read, decoded and folded to one row a flight."""
    (table,) = (table for table in flight_views.tables.values() if isinstance(table, EventTable))
    events, reduction = offsets.only(table.topic), Reduction(reading.log.schemas())
    begun = time.perf_counter()
    folded = reduction.reduce(reading.log.scan(reading.spark, events), table)
    folded.write.format("noop").mode("overwrite").save()
    return events.records / (time.perf_counter() - begun)


def _report(story: Story, pairs: list[tuple[Run, Run]], archiving: dict[str, float]) -> None:
    ours, other = (max((pair[side].report for pair in pairs), key=_rate) for side in (0, 1))
    claim = at_least(
        "rebuild.archive", ours=_rate(ours), other=_rate(other), other_name="the same rebuild from Kafka",
        unit="records/s", n=ours.records, runs=len(pairs), target=TARGET,
    )  # fmt: skip
    scans, folds = ([round(max(getattr(p[side], of) for p in pairs)) for side in (0, 1)] for of in ("scan", "fold"))
    path = write(
        "archive", [claim], seconds={"archive": ours.seconds, "kafka": other.seconds},
        scans={"archive": scans[0], "kafka": scans[1]}, folds={"archive": folds[0], "kafka": folds[1]},
        archiving=archiving,
    )  # fmt: skip
    story.say(f"rebuild.archive {claim.ratio} (target {TARGET}), scans alone {scans[0] / scans[1]:.1f}: see {path}")


def _rate(report: RebuildReport) -> float:
    return report.records_per_second


if __name__ == "__main__":
    typer.run(main)
