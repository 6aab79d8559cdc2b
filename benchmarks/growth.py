"""growth.events: a rebuild of ten times the events takes at most eleven times as long, in a driver that stays as small.

A foreign-key join of orders and customers, rebuilt from Kafka into PostgreSQL; best of the runs, alternating. Memory is
what the driver's heap still holds after the garbage of a rebuild is collected, and the most the driver's Python had.
What it does not show: topics that outgrow the disk, more cores.
"""

from __future__ import annotations

import resource
import time
from typing import Annotated

import typer

from benchmarks.machine import at_most, write
from benchmarks.shop_log import ShopLog
from eventstore import Settings
from factfold.stack import LocalStack, spark_jars
from projections import Environment, rebuild
from sample_app.road import database_url
from sample_app.story import Story

TIMES, TIME_TARGET, MEMORY_TARGET = 10, 11.0, 1.2


def main(
    orders: Annotated[int, typer.Option(help="Orders of the smaller log.")] = 200_000,
    runs: Annotated[int, typer.Option(help="Alternating runs; the best counts.")] = 3,
) -> None:
    """Measure and write build/bench/growth.json."""
    story = Story("growth.events")
    seconds: dict[int, list[float]] = {1: [], TIMES: []}
    heaps: dict[int, list[float]] = {1: [], TIMES: []}
    with LocalStack("bench", ephemeral=True) as servers:
        settings, views_url = Settings.for_broker(servers.info.bootstrap_servers), database_url(servers.info, "bench")
        with Environment.open(settings, views_url=views_url, jars=spark_jars(), memory="2g") as environment:
            logs = {times: ShopLog(settings, customers=orders * times // 10) for times in seconds}
            for times, log in logs.items():
                with story.step(f"{times * orders:,} orders written"):
                    log.insert(times * orders)
            for _ in range(runs):
                for times, log in logs.items():
                    with story.step(f"{times * orders:,} orders: rebuild"):
                        begun = time.perf_counter()
                        rebuild(environment, log.group)
                        seconds[times].append(time.perf_counter() - begun)
                    heaps[times].append(_heap_megabytes(environment))
                    story.say(f"{seconds[times][-1]:.1f} s, heap {heaps[times][-1]:.0f} MB")
    _report(story, seconds, heaps, n=TIMES * orders, runs=runs)


def _heap_megabytes(environment: Environment) -> float:
    """What the driver's JVM holds after a full collection."""
    jvm = environment.spark._jvm  # noqa: SLF001 - there is no public road to the driver's heap
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def _report(story: Story, seconds: dict[int, list[float]], heaps: dict[int, list[float]], *, n: int, runs: int) -> None:
    claims = [
        at_most(
            f"growth.events.{name}", ours=min(found[TIMES]), other=min(found[1]), other_name="a tenth of the events",
            unit=unit, n=n, runs=runs, target=target,
        )
        for name, found, unit, target in (
            ("seconds", seconds, "s", TIME_TARGET), ("memory", heaps, "MB", MEMORY_TARGET)
        )
    ]  # fmt: skip
    python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    path = write("growth", claims, seconds=seconds, heap_megabytes=heaps, python_megabytes=round(python))
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}: see {path}")


if __name__ == "__main__":
    typer.run(main)
