"""The queries of TPC-H and Nexmark as live views: how many stages each has, and how long a warm live batch takes.

Each query is a group of its own over the small tables of tests/conformance, whose rows are in a log in memory. Views
are in SQLite, and all share one Spark session. The third batch is measured, and must have DuckDB's answer. It does not
show what more rows cost, and there is no claim. `benchmarks.flink_queries` has a log on a broker and another engine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from benchmarks.machine import write
from projections import explain, open_session
from projections.spark.session import end_session, small_batch_session
from projections.stores.sqlite import SqliteTableStore
from sample_app.story import Story
from tests.conformance.sql_suites import LiveQueries, texts
from tests.conformance.test_sql_suites import TOYS, play_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARM = 2  # batches before the one that is measured: the first makes the plans


def main() -> None:
    """Measure and write build/bench/queries.json."""
    story, spark = Story("stages and batches of TPC-H and Nexmark"), open_session(memory="1g")
    with tempfile.TemporaryDirectory() as folder:
        measured = list(_measured(story, small_batch_session(spark), Path(folder)))
    end_session(spark)
    story.say(f"{len(measured)} queries: see {write('queries', [], queries=measured)}")


def _measured(story: Story, spark: SparkSession, folder: Path) -> Iterator[dict[str, Any]]:
    for suite in TOYS:
        for name, text in texts(suite).items():
            store, play = SqliteTableStore(folder / f"{name}.db"), play_of(suite)
            store.prepare()
            with story.step(name), LiveQueries(spark, name, {name: text}, play, store) as live:
                seconds = [_seconds(live) for _ in range(WARM + 1)]
                if wrong := live.wrong():
                    raise RuntimeError(f"another answer than DuckDB's: {wrong}")
                stages = len(explain(store, live.group, name))
            store.close()
            yield {"query": name, "stages": stages, "seconds": [round(each, 2) for each in seconds]}


def _seconds(live: LiveQueries) -> float:
    begun = time.perf_counter()
    live.follow()
    return time.perf_counter() - begun


if __name__ == "__main__":
    typer.run(main)
