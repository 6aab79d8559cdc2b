"""large.*: a state that outgrows the heap, and the same on two executors with two groups.

Ten million orders and a million customers in two topics, joined by a view. The driver has a heap of 2 GB.

- `large.rebuild`: records a second of the rebuild, against the same with a tenth of the rows.
- `large.batch`: seconds of a batch of 1,000 changes, best of several, against the same with a tenth of the rows.
- With `--cluster`, Spark runs two executors of one core and 2 GB each on this machine. They share its cores and disk
  with both servers: the figures show that it works, not how it scales.

What it does not show: machines of their own, a database with other work to do, several groups at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.incremental import best
from benchmarks.machine import at_least, at_most, write
from benchmarks.shop_log import ShopLog
from eventstore import Settings
from factfold.stack import LocalStack, spark_jars
from projections import Environment, SparkSettings, open_runner, rebuild
from sample_app.road import database_url
from sample_app.story import Story

CHANGES, TARGET_RATE, TARGET_BATCH = 1_000, 0.8, 1.3
_CLUSTER = "local-cluster[2,1,2048]"


def main(
    orders: Annotated[int, typer.Option(help="Orders. A tenth as many customers.")] = 10_000_000,
    runs: Annotated[int, typer.Option(help="Batches. The best counts.")] = 5,
    cluster: Annotated[bool, typer.Option(help="Two executors instead of the driver's threads.")] = False,
) -> None:
    """Measure and write build/bench/large.json."""
    story, rates, seconds = Story("large.*"), {}, {}
    with LocalStack("bench", ephemeral=True) as servers:
        settings = Settings.for_broker(servers.info.bootstrap_servers)
        views_url = database_url(servers.info, "bench")
        spark = SparkSettings(master=_CLUSTER) if cluster else None
        with Environment.open(
            settings, views_url=views_url, jars=spark_jars(), memory="2g", spark=spark
        ) as environment:
            for size in (orders // 10, orders):
                log = ShopLog(settings, customers=size // 10)
                with story.step(f"{size:,} orders: records"):
                    log.insert(size)
                with story.step(f"{size:,} orders: rebuild"):
                    rates[size] = rebuild(environment, log.group).records_per_second
                with story.step(f"{size:,} orders: batches"), open_runner(environment, log.group) as runner:
                    seconds[size] = best(runner, log, CHANGES, runs)
                story.say(f"{rates[size]:,.0f} records/s; {CHANGES:,} changes in {seconds[size]:.3f} s")
    _report(story, rates, seconds, runs=runs, cluster=cluster)


def _report(story: Story, rates: dict[int, float], seconds: dict[int, float], *, runs: int, cluster: bool) -> None:
    small, large = sorted(rates)
    name = f"at {small:,} orders"
    claims = [
        at_least(
            "large.rebuild", ours=rates[large], other=rates[small], other_name=name, unit="records/s", n=large,
            runs=1, target=TARGET_RATE,
        ),
        at_most(
            "large.batch", ours=seconds[large], other=seconds[small], other_name=name, unit="s", n=large, runs=runs,
            target=TARGET_BATCH,
        ),
    ]  # fmt: skip
    path = write("large", claims, cluster=cluster, rates=rates, seconds=seconds)
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}: see {path}")


if __name__ == "__main__":
    typer.run(main)
