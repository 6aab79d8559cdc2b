"""make demo-flights: a year of flights on the whole road, corrected while it runs, compared with pandas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import pyarrow as pa
import sqlalchemy as sa
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sqlalchemy.orm import Session

from eventstore import StreamAppend
from factfold.stack import LocalStack, StackInfo, spark_jars
from projections import Environment, ViewVerdict, rebuild, verify
from projections.spark.views.view_functions import view_columns
from projections.stores.arrow import arrow_schema
from projections.stores.comparison import digest_rows
from sample_app.flights.corrections import Corrections
from sample_app.flights.flight import Flight
from sample_app.flights.model import Airline, Airport, Base, Plane, Weather
from sample_app.flights.oracle import as_arrow, expected_details, expected_weather
from sample_app.flights.source import appends, read_flights, read_rows
from sample_app.flights.weather_view import flights_and_weather
from sample_app.live import LiveViews, live_views
from sample_app.road import Road, lay_road
from sample_app.story import Story
from sample_app.versions import running_versions

LIVE_SHARE = 0.05  # of the flights, appended later while the view follows
ROUNDS = 10
FEWEST = 1_000  # the corrections choose their flights among them


def main(
    flights: Annotated[
        int | None, typer.Option(min=FEWEST, help="How many flights, the first of the year. Default: all.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of corrections while the view follows.")] = ROUNDS,
) -> None:
    """Run the flights; ends with an exit code other than 0 if a single row differs."""
    story = Story("Factfold: the flights of 2013 from New York")
    story.facts["versions"] = running_versions()
    stack = LocalStack("flights", ephemeral=True)
    with story.step("PostgreSQL, Kafka and Kafka Connect started"):
        stack.up()
    try:
        tell(story, stack.info, read_flights(flights), rounds=rounds)
    finally:
        stack.down()
    story.write(Path("build/flights.json"))
    for name, view in {"flight_details": story.facts, **story.facts["views"]}.items():
        if len({view[digest] for digest in ("digest", "recomputed_digest", "pandas_digest")}) > 1:
            raise SystemExit(f"{name} differs from the log or from pandas: {view['differing_keys']}")


def tell(story: Story, info: StackInfo, flights: pd.DataFrame, *, rounds: int) -> None:
    """Take the flights over the road of a running stack, and compare the view with the log and with pandas."""
    with story.step("database, event store, topics and two Debezium connectors created"):
        road = lay_road(info, "flights", aggregates=[Flight], tables=Base.metadata)
    first, rest = _parted(flights)
    with closing(road):
        with story.step("airlines, airports, planes and weather inserted"):
            write_tables(road)
        append_flights(story, road, first, text="events appended")
        with story.step("every row and event captured by Debezium"):
            road.wait_until_captured()
        with story.step("Spark started"):
            environment = Environment.open(road.settings, views_url=road.views_url, jars=spark_jars(), memory="3g")
        corrections = Corrections(road, list(first["flight_id"]))
        with closing(environment.store):
            _build(story, environment)
            _live(story, road, environment, rest, corrections, rounds)
            _compare(story, road, environment, flights, corrections)


def _parted(flights: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    cut = int(len(flights) * (1 - LIVE_SHARE))
    return flights.iloc[:cut], flights.iloc[cut:]


def _build(story: Story, environment: Environment) -> None:
    with story.step("views flight_details and departure_weather built from the topics"):
        built = rebuild(environment, flights_and_weather)
    story.facts["rebuild_events_per_s"] = round(story.facts["events"] / built.total_seconds)
    story.facts["rebuild_seconds"] = {step: round(s, 2) for step, s in built.seconds.items()}
    story.say(f"{built.records:,} offsets at {built.records_per_second:,.0f} records/s, loaded and indexed")


def write_tables(road: Road) -> None:
    """Write the ordinary tables, as their service would have."""
    with Session(road.engine) as session, session.begin():
        for model in (Airline, Airport, Plane, Weather):
            session.execute(sa.insert(model), read_rows(model))


def append_flights(story: Story, road: Road, flights: pd.DataFrame, *, text: str) -> int:
    """Append the flights' events in batches, with a bar; returns how many events there were."""
    begun, events = time.perf_counter(), 0
    with _bar(text, len(flights)) as advance:
        for batch in appends(flights):
            events += _append(road, batch)
            advance(len(batch))
    seconds = time.perf_counter() - begun
    story.facts["events"] = story.facts.get("events", 0) + events
    story.say(f"{events:,} events of {len(flights):,} flights appended, {events / seconds:,.0f} events/s")
    return events


def _append(road: Road, batch: list[StreamAppend]) -> int:
    road.store.append_batch(batch)
    return sum(len(append.events) for append in batch)


@contextmanager
def _bar(text: str, total: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda count: progress.advance(task, count)


def _live(
    story: Story, road: Road, environment: Environment, rest: pd.DataFrame, corrections: Corrections, rounds: int
) -> None:
    with live_views(environment, flights_and_weather) as run:
        during = rounds // 2
        _burst(story, road, run, rest, lambda: corrections.rounds(during))
        with story.step(f"{rounds - during} more rounds of corrections, one a second, while the view is live"):
            for number in range(during, rounds):
                corrections.round()
                if number == rounds // 2:
                    corrections.rename_large()
                time.sleep(1)
            corrections.finish()
        with story.step("the view has caught up"):
            road.wait_until_captured()
            run.wait_until_caught_up()
    story.facts["events"] += corrections.events
    story.facts["corrections"] = corrections.applied
    story.say(
        f"{corrections.applied} corrections; in {len(run.batches)} batches {sum(b.upserts for b in run.batches):,}"
        f" rows written, {sum(b.retractions for b in run.batches):,} retracted"
    )


def _burst(story: Story, road: Road, run: LiveViews, rest: pd.DataFrame, correct: Callable[[], object]) -> None:
    """Append the remaining flights at full speed, with corrections at the same time, until the view has all."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(max_workers=1) as executor:
        corrected = executor.submit(correct)
        events = append_flights(story, road, rest, text="appended live")
        corrected.result()
    road.wait_until_captured()
    run.wait_until_caught_up()
    seconds = time.perf_counter() - begun
    story.facts["live_events_per_s"] = round(events / seconds)
    story.say(f"in the view after {seconds:.1f} s: {events / seconds:,.0f} events/s, appending and capture included")


def _compare(
    story: Story, road: Road, environment: Environment, flights: pd.DataFrame, corrections: Corrections
) -> None:
    with story.step("compared with a recomputation from the log, and with pandas"):
        verdicts = verify(environment, flights_and_weather)
        expected = {
            "flight_details": expected_details(flights, corrections.reassigned, road.engine),
            "departure_weather": expected_weather(flights, road.engine),
        }
        columns = view_columns(environment.spark, flights_and_weather)
        results = {n: _facts(verdicts[n], as_arrow(rows, arrow_schema(columns[n]))) for n, rows in expected.items()}
    story.facts |= results["flight_details"]
    story.facts["views"] = {"departure_weather": results["departure_weather"]}
    for name, facts in results.items():
        log, live = (str(facts[digest])[:16] for digest in ("recomputed_digest", "digest"))
        compared = f"pandas {facts['pandas_rows']:,} rows {facts['pandas_digest'][:16]}…"
        story.say(f"{name}: live view {facts['rows']:,} rows {live}… · log {log}… · {compared}")


def _facts(verdict: ViewVerdict, expected: list[pa.RecordBatch]) -> dict[str, Any]:
    """The live view's digest, that of its recomputation, and that of what pandas made."""
    pandas_digest, pandas_rows = digest_rows(expected)
    return {
        "rows": verdict.rows, "digest": verdict.digest, "recomputed_digest": verdict.recomputed_digest,
        "differing_keys": list(verdict.differing_keys),
        "pandas_rows": pandas_rows, "pandas_digest": pandas_digest,
    }  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
