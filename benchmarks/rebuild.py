"""rebuild.scan: the rebuild of flight_details against Spark's raw scan of the same topics.

Both read the same committed records with the same Kafka options. The scan throws key and value away; the rebuild
decodes Avro and JSON, folds, joins four tables, loads state and view into PostgreSQL, indexes and analyses them. Best
of the runs, alternating. What it does not show: other record sizes, a broker and a database on machines of their own,
more cores, or a process that has just started (the first run of each is slower by the JVM's warming up).
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from benchmarks.machine import at_least, write
from factfold.stack import LocalStack, spark_jars
from projections import Environment, rebuild
from projections.rebuilding import RebuildReport
from projections.whole_log import whole_log
from sample_app.flights.demo import append_flights, write_tables
from sample_app.flights.flight import Flight
from sample_app.flights.model import Base
from sample_app.flights.source import read_flights
from sample_app.flights.view import flight_views
from sample_app.road import lay_road
from sample_app.story import Story

TARGET = 0.3


def main(
    flights: Annotated[int | None, typer.Option(help="How many flights; all by default.")] = None,
    runs: Annotated[int, typer.Option(help="Alternating runs; the best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Keep the data in this stack and use it again.")] = None,
) -> None:
    """Measure and write build/bench/rebuild.json."""
    story = Story("rebuild.scan")
    with LocalStack(stack or "bench", ephemeral=stack is None) as servers:
        road = lay_road(servers.info, "flights", aggregates=[Flight], tables=Base.metadata)
        if not any(True for _ in road.store.read_all(limit=1)):
            write_tables(road)
            append_flights(story, road, read_flights(flights), text="events appended")
        road.wait_until_captured()
        environment = Environment.open(road.settings, views_url=road.views_url, jars=spark_jars(), memory="3g")
        measured = [_measure(story, environment) for _ in range(runs)]
        environment.close()
    _report(story, measured)


def _measure(story: Story, environment: Environment) -> tuple[float, RebuildReport]:
    offsets = whole_log(environment, flight_views)
    with story.step("raw scan"):
        begun = time.perf_counter()
        raw = environment.log.scan(environment.spark, offsets)
        raw.select("key", "value").write.format("noop").mode("overwrite").save()
        scan = offsets.records / (time.perf_counter() - begun)
    with story.step("rebuild"):
        report = rebuild(environment, flight_views)
    story.say(f"scan {scan:,.0f} records/s, rebuild {report.records_per_second:,.0f} records/s {report.seconds}")
    return scan, report


def _report(story: Story, measured: list[tuple[float, RebuildReport]]) -> None:
    scan = max(rate for rate, _ in measured)
    best = max((report for _, report in measured), key=lambda report: report.records_per_second)
    claim = at_least(
        "rebuild.scan", ours=best.records_per_second, other=scan, other_name="Spark raw scan into nothing",
        unit="records/s", n=best.records, runs=len(measured), target=TARGET,
    )  # fmt: skip
    path = write("rebuild", [claim], seconds=best.seconds, rows=best.rows)
    story.say(f"rebuild.scan {claim.ratio} (target {TARGET}): written to {path}")


if __name__ == "__main__":
    typer.run(main)
