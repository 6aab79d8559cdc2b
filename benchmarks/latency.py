"""latency.view and latency.reaction: what an accepted command waits for, on the shop's whole road.

Orders are placed and paid at a steady rate. From the moment a command is accepted: until its order's row is seen in
the view `order_details` (Debezium, Kafka read committed, a live batch of two views over five tables), and until the
handler of the payments' branch `suspicious` is called (Debezium, Kafka, the router in real-time mode, a subscription
with its inbox). The same run also measures the time until the record is in its topic: the cost before Spark. Best
of the runs; a warm-up comes first. What it does not show: servers on machines of their own, higher rates, a database
with other work to do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import typer

from benchmarks.machine import Claim, write
from eventstore import Dispatcher
from factfold.stack import LocalStack, StackInfo, spark_jars
from projections import Environment, rebuild
from sample_app.customers.model import Base
from sample_app.fraud import Remediation
from sample_app.inventory import InventoryItem
from sample_app.latency import LatencyWatch
from sample_app.live import live_views
from sample_app.orders import Order
from sample_app.payments import Payment
from sample_app.road import Road, database_url, lay_road
from sample_app.services import delivered, router_process
from sample_app.story import Story
from sample_app.traffic import ShopTraffic
from sample_app.views import shop_views

# Milliseconds: median, 99th percentile.
TARGETS: Mapping[str, tuple[float, float]] = {"view": (1_200, 3_000), "reaction": (80, 700)}
Run = Mapping[str, Mapping[str, float]]


def main(
    seconds: Annotated[int, typer.Option(help="How long each run measures.")] = 60,
    rate: Annotated[int, typer.Option(help="Orders tried a second.")] = 10,
    warm: Annotated[int, typer.Option(help="Seconds of the same before the first run.")] = 60,
    runs: Annotated[int, typer.Option(help="Runs, one after another. The best counts.")] = 3,
) -> None:
    """Measure and write build/bench/latency.json."""
    story = Story("latency.view, latency.reaction")
    with LocalStack("bench", ephemeral=True) as servers, _shop(story, servers.info) as (road, traffic, watches):
        measured: list[Run] = []
        for number in range(runs + 1):
            watch = LatencyWatch(road, topic=Order.category, view="order_details", key="order_id")
            watches.append(watch)
            with story.step(f"run {number}" if number else "warm-up"):
                _play(traffic, watch, orders=rate * (seconds if number else warm), rate=rate)
            if number:
                measured.append(watch.percentiles())
                story.say(str(measured[-1]))
    _report(story, measured, rate=rate)


@contextmanager
def _shop(story: Story, info: StackInfo) -> Iterator[tuple[Road, ShopTraffic, list[LatencyWatch]]]:
    """The running shop. The last watch gets the calls of the fraud handler."""
    watches: list[LatencyWatch] = []
    with ExitStack() as stack:
        aggregates = [Order, InventoryItem, Payment]
        road = lay_road(info, "shop", aggregates=aggregates, tables=Base.metadata, history=["customers"])
        stack.callback(road.close)
        log = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "router.log"
        stack.enter_context(router_process(road.settings, "sample_app.payments:payment_branches", log=log))
        traffic = ShopTraffic(road, customers=200, articles=40)
        traffic.open()
        environment = Environment.open(road.settings, views_url=road.views_url, jars=spark_jars())
        stack.callback(environment.close)
        with story.step("views built"):
            road.wait_until_captured()
            rebuild(environment, shop_views)
        fraud = sa.create_engine(database_url(info, "shop_fraud"))
        views = sa.create_engine(road.views_url)
        remediation = Remediation(
            Dispatcher(road.store), database=fraud, views=views, on_called=lambda order: watches[-1].reaction.end(order)
        )
        stack.enter_context(live_views(environment, shop_views))
        stack.enter_context(delivered([remediation.subscription()], settings=road.settings, engine=fraud))
        yield road, traffic, watches


def _play(traffic: ShopTraffic, watch: LatencyWatch, *, orders: int, rate: int) -> None:
    traffic.receive()
    began = time.monotonic()
    with watch.watching():
        for number in range(orders):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            traffic.order(placed=watch.accepted, suspected=watch.reaction.begin)
        watch.wait(deadline=120)


def _report(story: Story, measured: list[Run], *, rate: int) -> None:
    claims = []
    for side, targets in TARGETS.items():
        for part, target in zip(("p50", "p99"), targets, strict=True):
            ours, floor = (min(run[of][part] for run in measured) for of in (side, "topic"))
            n = int(min(run[side]["n"] for run in measured))
            name = f"latency.{side}.{'median' if part == 'p50' else 'p99'}"
            claims.append(
                Claim(name, ours, floor, "until the record is in its topic", round(ours / floor, 2), "ms", n,
                      len(measured), target, ours <= target)
            )  # fmt: skip
    path = write("latency", claims, rate=rate, all_runs=measured)
    story.say(f"written to {path}; a target here is the milliseconds themselves, not the ratio")


if __name__ == "__main__":
    typer.run(main)
