"""rebuild.*, growth.events: the view of all flights rebuilt, against reading alone, an archive, Kafka Streams and Quix.

One run on one machine, from the same topics: the flights of a year (a million events), then ten such years. A rebuild
decodes Avro and JSON, folds, joins five tables, loads state and view into PostgreSQL, indexes and analyses them.

- `rebuild.scan`: against Spark's scan of the same committed records with the same Kafka options, into nothing.
- `rebuild.archive`: from an archive of the topics, against from Kafka. Two more rates, of reading alone and of reading,
  decoding and folding the events into nothing, show what an archive can win, and what is left then.
- `rebuild.kstreams`: against the same view by Kafka Streams, into a topic: at least once, no table to query, no index.
- `rebuild.quix`: against the as-of join of the flights with their planes alone: less than the view.
- `growth.events`: ten years against one; memory is what the driver's heap holds after a full collection.

Best of the runs, alternating; a new process and a new state each for the peers, whose starting is counted: less than
a second or two. What it does not show: a rebuild's process that has just started (its first runs are slower by the
JVM's warming up), other record sizes, an object store, a broker and a database on machines of their own, more cores.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from benchmarks.flight_log import EVENTS, PLANES, FlightLog
from benchmarks.machine import Claim, at_least, at_most, write
from benchmarks.peer import KafkaStreams, QuixStreams
from factfold.stack import LocalStack, delta_jars, spark_jars
from projections import Archiver, Environment, rebuild
from projections.declaring.tables import EventTable
from projections.lifecycle.rebuild import RebuildReport
from projections.logs.offsets import OffsetRange
from projections.logs.port import RecordLog
from projections.spark.archive.delta_archive import DeltaArchive, archived_log
from projections.spark.kinds import Reduction
from projections.spark.reading.kafka_source import KafkaLog
from projections.spark.reading.records import whole_log
from sample_app.flights.view import flight_views
from sample_app.story import Story

SCAN, ARCHIVE, PEER, TIME, MEMORY = 0.3, 5.0, 8.0, 11.0, 1.2
_FROM_KAFKA = "the same rebuild from Kafka"
_COLLECTIONS, _CLEANED_WITHIN = 5, 12.0  # of the heap; seconds in which Spark drops what is free, idle consumers too


@dataclass
class Source:
    """What was measured of one source: records a second read and events a second folded, into nothing; rebuilds."""

    scans: list[float] = field(default_factory=list)
    folds: list[float] = field(default_factory=list)
    reports: list[RebuildReport] = field(default_factory=list)

    @property
    def best(self) -> RebuildReport:
        """The quickest rebuild."""
        return max(self.reports, key=lambda report: report.records_per_second)


@dataclass
class Measured:
    """A log of so many years: both sources, the peers' records a second, the driver's megabytes after each rebuild."""

    years: int
    kafka: Source = field(default_factory=Source)
    archive: Source = field(default_factory=Source)
    streams: list[float] = field(default_factory=list)
    quix: list[float] = field(default_factory=list)
    heaps: list[float] = field(default_factory=list)


def main(
    flights: Annotated[int | None, typer.Option(help="How many flights a year. Default: all.")] = None,
    years: Annotated[int, typer.Option(help="Years of the larger log. 1 leaves it out.")] = 10,
    runs: Annotated[int, typer.Option(help="Alternating runs of the smaller log. The best counts.")] = 3,
    large_runs: Annotated[int, typer.Option(help="Runs of the larger one.")] = 1,
) -> None:
    """Measure and write build/bench/rebuild.json."""
    story = Story("rebuild.*, growth.events")
    peers = KafkaStreams(), QuixStreams()
    measured, archiving = [], []
    with LocalStack("bench", ephemeral=True) as servers, TemporaryDirectory() as folder:
        log = FlightLog.laid(story, servers.info, flights=flights)
        jars = [*spark_jars(), *delta_jars()]
        with Environment.open(log.settings, views_url=log.views_url, jars=jars, memory="3g") as environment:
            for size, times in ({1: runs} | ({years: large_runs} if years > 1 else {})).items():
                with story.step(f"{size} years of flights"):
                    log.multiply(size)
                archiving.append(_archive(story, environment, Path(folder)))
                archived = archived_log(environment.spark, KafkaLog(log.settings), Path(folder))
                measured.append(Measured(size))
                for _ in range(times):
                    _measure_ours(story, environment, archived, measured[-1])
                    _write(story, measured, archiving)  # now: the peers need an hour for ten years
                    _measure_peers(story, environment, log, peers, measured[-1])
                    _write(story, measured, archiving)


def _archive(story: Story, environment: Environment, folder: Path) -> dict[str, float]:
    """Archive what the archive has not; returns offsets a second and the bytes of its files."""
    archiver = Archiver(environment.log, DeltaArchive.open(environment.spark, folder))
    begun = time.perf_counter()
    with story.step("archive"):
        offsets = archiver.catch_up(flight_views.topics)
    seconds = time.perf_counter() - begun
    size = sum(archiver.archive.table(topic).files()[1] for topic in flight_views.topics)
    story.say(f"archived {offsets / seconds:,.0f} offsets/s, {size / 1e6:,.1f} MB")
    return {"offsets_per_second": round(offsets / seconds), "bytes": size}


def _measure_ours(story: Story, environment: Environment, archived: RecordLog, into: Measured) -> None:
    _measure_source(story, environment, into.kafka)
    into.heaps.append(_heap_megabytes(environment))
    story.say(f"the driver's heap holds {into.heaps[-1]:.0f} MB")
    _measure_source(story, dataclasses.replace(environment, log=archived), into.archive)


def _measure_peers(
    story: Story, environment: Environment, log: FlightLog, peers: tuple[KafkaStreams, QuixStreams], into: Measured
) -> None:
    streams, quix = peers
    counts, rows = _counts(environment), into.kafka.reports[-1].rows["flight_details"]
    with story.step(streams.name):
        into.streams.append(streams.view_rate(log, records=sum(counts.values()), rows=rows))
    with story.step(quix.name):
        into.quix.append(quix.rate(log, records=counts[EVENTS] + counts[PLANES]))
    story.say(f"Kafka Streams {into.streams[-1]:,.0f}, Quix {into.quix[-1]:,.0f} records/s")


def _counts(environment: Environment) -> dict[str, int]:
    """The records of each topic: offsets count the markers of transactions too, and records that compaction took."""
    raw = environment.log.scan(environment.spark, whole_log(environment, flight_views))
    return {row["topic"]: row["count"] for row in raw.groupBy("topic").count().collect()}


def _measure_source(story: Story, environment: Environment, into: Source) -> None:
    name, offsets = type(environment.log).__name__, whole_log(environment, flight_views)
    with story.step(f"{name}: scan"):
        into.scans.append(_scan(environment, offsets))
    with story.step(f"{name}: fold"):
        into.folds.append(_fold(environment, offsets.only(EVENTS)))
    with story.step(f"{name}: rebuild"):
        report = rebuild(environment, flight_views)
    into.reports.append(report)
    rate = f"rebuild {report.records_per_second:,.0f} records/s {_rounded(report.seconds)}"
    story.say(f"{name}: scan {into.scans[-1]:,.0f}, fold {into.folds[-1]:,.0f}, {rate}")


def _scan(environment: Environment, offsets: OffsetRange) -> float:
    """Records a second into nothing."""
    begun = time.perf_counter()
    raw = environment.log.scan(environment.spark, offsets)
    raw.select("key", "value").write.format("noop").mode("overwrite").save()
    return offsets.records / (time.perf_counter() - begun)


def _fold(environment: Environment, events: OffsetRange) -> float:
    """Events a second, read, decoded and folded to one row a flight, into nothing."""
    (table,) = (table for table in flight_views.tables.values() if isinstance(table, EventTable))
    reduction = Reduction(environment.log.schemas())
    begun = time.perf_counter()
    folded = reduction.reduce(environment.log.scan(environment.spark, events), table)
    folded.write.format("noop").mode("overwrite").save()
    return events.records / (time.perf_counter() - begun)


def _heap_megabytes(environment: Environment) -> float:
    """What the driver's JVM holds after full collections: what the first one finds free, Spark lets go of behind it."""
    jvm = environment.spark._jvm  # noqa: SLF001 - there is no public road to the driver's heap
    runtime = jvm.java.lang.Runtime.getRuntime()
    held = []
    for _ in range(_COLLECTIONS):
        jvm.java.lang.System.gc()
        held.append(float(runtime.totalMemory() - runtime.freeMemory()) / 1e6)
        time.sleep(_CLEANED_WITHIN)
    return min(held)


def _write(story: Story, measured: list[Measured], archiving: list[dict[str, float]]) -> None:
    claims = [claim for size in measured for claim in _rates(size)]
    if len(measured) > 1:
        claims += _growth(*measured)
    path = write("rebuild", claims, archiving=archiving, sizes=[_size_fields(size) for size in measured])
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}: see {path}")


def _rates(size: Measured) -> list[Claim]:
    best, suffix = size.kafka.best, "" if size.years == 1 else f".x{size.years}"
    ours, archived = best.records_per_second, size.archive.best.records_per_second
    return [
        at_least(
            f"{id}{suffix}", ours=one, other=max(others), other_name=name, unit="records/s", n=best.records,
            runs=len(others), target=target,
        )
        for id, one, others, name, target in (
            ("rebuild.scan", ours, size.kafka.scans, "Spark raw scan into nothing", SCAN),
            ("rebuild.archive", archived, [r.records_per_second for r in size.kafka.reports], _FROM_KAFKA, ARCHIVE),
            ("rebuild.kstreams", ours, size.streams, f"{KafkaStreams.name}, the same view", PEER),
            ("rebuild.quix", ours, size.quix, QuixStreams.name, PEER),
        )
        if others
    ]  # fmt: skip


def _growth(small: Measured, large: Measured) -> list[Claim]:
    times = large.years / small.years
    seconds = [size.kafka.best.records / size.kafka.best.records_per_second for size in (large, small)]
    heaps = [min(size.heaps) for size in (large, small)]
    return [
        at_most(
            f"growth.events.{name}", ours=ours, other=other, other_name=f"{small.years} year of {large.years}",
            unit=unit, n=large.kafka.best.records, runs=len(large.heaps), target=target,
        )
        for name, (ours, other), unit, target in (
            ("seconds", seconds, "s", TIME * times / 10), ("memory", heaps, "MB", MEMORY)
        )
    ]  # fmt: skip


def _size_fields(size: Measured) -> dict[str, Any]:
    sources = {"kafka": size.kafka, "archive": size.archive}
    return {
        "years": size.years,
        "heap_megabytes": size.heaps,
        "streams": size.streams,
        "quix": size.quix,
        **{name: _source_fields(source) for name, source in sources.items()},
    }


def _source_fields(source: Source) -> dict[str, Any]:
    seconds = [_rounded(report.seconds) for report in source.reports]
    rates = [round(report.records_per_second) for report in source.reports]
    return {"scans": source.scans, "folds": source.folds, "rebuilds": rates, "seconds": seconds}


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {step: round(took, 2) for step, took in seconds.items()}


if __name__ == "__main__":
    typer.run(main)
