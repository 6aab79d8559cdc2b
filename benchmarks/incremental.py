"""incremental.growth, incremental.floor: what a live batch costs as the state grows, and what it costs at the least.

A foreign-key join of orders and customers, stored in PostgreSQL over states of 10,000, 100,000 and 1,000,000 orders:
batches of 1,000 changed orders each, the best of several. The floor is a batch of 100 changes at 100,000 orders against
100 records of the same topic into a foreachBatch that does nothing, both from the moment the records are in the topic.
What it does not show: changes of a row that many rows refer to (they cost the rows they reach), more cores, a database
on a machine of its own.
"""

from __future__ import annotations

import tempfile
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.machine import at_most, write
from benchmarks.shop_log import ShopLog
from eventstore import Settings
from factfold.stack import LocalStack, spark_jars
from projections import Environment, Runner, open_runner, rebuild
from sample_app.road import database_url
from sample_app.story import Story

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIZES = (10_000, 100_000, 1_000_000)
CHANGES, FEW = 1_000, 100
GROWTH, FLOOR = 1.3, 4.0


def main(
    runs: Annotated[int, typer.Option(help="Batches at each size. The best counts.")] = 7,
    largest: Annotated[int, typer.Option(help="The largest state.")] = SIZES[-1],
) -> None:
    """Measure and write build/bench/incremental.json."""
    story = Story("incremental.growth, incremental.floor")
    sizes = [size for size in SIZES if size <= largest]
    seconds: dict[int, float] = {}
    few, nothing = 0.0, 0.0
    with LocalStack("bench", ephemeral=True) as servers:
        settings, views_url = Settings.for_broker(servers.info.bootstrap_servers), database_url(servers.info, "bench")
        with Environment.open(settings, views_url=views_url, jars=spark_jars(), memory="3g") as environment:
            for size in sizes:
                log = ShopLog(settings, customers=size // 10)
                with story.step(f"{size:,} orders: rebuild"):
                    log.insert(size)
                    rebuild(environment, log.group)
                with story.step(f"{size:,} orders: batches"), open_runner(environment, log.group) as runner:
                    seconds[size] = best(runner, log, CHANGES, runs)
                    if size == SIZES[1]:
                        few = best(runner, log, FEW, runs)
                story.say(f"{CHANGES:,} changes: {seconds[size]:.3f} s")
                if size == SIZES[1]:
                    with story.step("foreachBatch that does nothing"):
                        nothing = _foreach_batch(environment, log, runs)
                    story.say(f"{FEW} changes: {few:.3f} s; into nothing: {nothing:.3f} s")
    _report(story, seconds, few, nothing, runs=runs)


def best(runner: Runner, log: ShopLog, changes: int, runs: int) -> float:
    """The seconds of the quickest batch of so many changes; two before it make the plans and warm up."""
    seconds = []
    for _ in range(runs + 2):
        log.update(changes)
        begun = time.perf_counter()
        report = runner.run_once(max_records=changes)
        seconds.append(time.perf_counter() - begun)
        if report is None or report.records < changes:
            raise RuntimeError(f"the batch had not all of the {changes} changes: {report}")
    return min(seconds[2:])


def _foreach_batch(environment: Environment, log: ShopLog, runs: int) -> float:
    """The seconds of Spark's own stream from the records' being there until its function is called and has returned."""
    done, took = threading.Event(), []

    def nothing(frame: DataFrame, _: int) -> None:
        if frame.count():
            done.set()

    with tempfile.TemporaryDirectory() as checkpoint:
        source = environment.spark.readStream.format("kafka").options(
            **{"kafka.bootstrap.servers": log.settings.kafka.bootstrap_servers, "kafka.fetch.max.wait.ms": "10"},
            subscribe=log.orders_topic, startingOffsets="latest",
        )  # fmt: skip
        query = source.load().writeStream.foreachBatch(nothing).option("checkpointLocation", checkpoint).start()
        try:
            time.sleep(10)  # until it has looked where the topic ends
            for _ in range(runs + 2):
                done.clear()
                log.update(FEW)
                begun = time.perf_counter()
                done.wait(60)
                took.append(time.perf_counter() - begun)
                time.sleep(1)
        finally:
            query.stop()
    return min(took[2:])


def _report(story: Story, seconds: dict[int, float], few: float, nothing: float, *, runs: int) -> None:
    smallest, largest = min(seconds), max(seconds)
    claims = [
        at_most(
            "incremental.growth", ours=seconds[largest], other=seconds[smallest], other_name=f"at {smallest:,} rows",
            unit="s", n=largest, runs=runs, target=GROWTH,
        ),
        at_most(
            "incremental.floor", ours=few, other=nothing, other_name="a foreachBatch that does nothing",
            unit="s", n=FEW, runs=runs, target=FLOOR,
        ),
    ]  # fmt: skip
    path = write("incremental", claims, seconds={str(size): round(took, 3) for size, took in seconds.items()})
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}: see {path}")


if __name__ == "__main__":
    typer.run(main)
