"""latency.*: what an accepted command waits for, on the shop's whole road.

Orders are placed and paid at a steady rate. From the moment a command is accepted: until its order's row is seen in
the view `order_details` (Debezium, Kafka read committed, a live batch of two views over five tables), and until the
handler of the payments' branch `suspicious` is called (Debezium, Kafka, the router in real-time mode, a subscription
with its inbox). The same run also measures the time until the record is in its topic: the cost before Spark.

Runner and router are the commands in processes of their own. `latency.first_minute` is the view's median in the first
minute of a runner, against the best one that follows. `latency.views.7` is the view's with the shop's other group
live. Best of the runs. What it does not show: servers on machines of their own, higher rates, a database with other
work to do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import sqlalchemy as sa
import typer

from benchmarks.machine import Claim, at_most, write
from eventstore import Dispatcher
from factfold.stack import LocalStack, StackInfo, spark_jars
from projections import Environment, rebuild
from projections.stores.locks import runner_of
from projections.stores.postgres import PostgresTableStore
from sample_app.background import wait_until
from sample_app.browsing import Session as BrowsingSession
from sample_app.browsing import Visitors
from sample_app.customers.model import Base
from sample_app.fraud import Remediation
from sample_app.inventory import InventoryItem
from sample_app.latency import LatencyWatch
from sample_app.orders import Order
from sample_app.payments import Payment
from sample_app.road import Road, database_url, lay_road
from sample_app.services import delivered, of_broker, router_process, running_command
from sample_app.story import Story
from sample_app.traffic import ShopTraffic
from sample_app.views import shop_views, time_views

# Milliseconds: median, 99th percentile.
TARGETS: Mapping[str, tuple[float, float]] = {"view": (300, 3_000), "reaction": (30, 700)}
GROUPS = {"shop_views": shop_views, "time_views": time_views}
MORE_VIEWS, FIRST_MINUTE = 400, 2.0
Run = Mapping[str, Mapping[str, float]]


def main(
    seconds: Annotated[int, typer.Option(help="How long each run measures.")] = 60,
    rate: Annotated[int, typer.Option(help="Orders tried a second.")] = 10,
    runs: Annotated[int, typer.Option(help="Runs after the first minute, one after another. The best counts.")] = 3,
) -> None:
    """Measure and write build/bench/latency.json."""
    story = Story("latency.*")
    with LocalStack("bench", ephemeral=True) as servers, TemporaryDirectory() as folder:
        with _shop(story, servers.info, Path(folder)) as shop:
            with shop.kept("shop_views", log=Path(folder) / "runner.log"):
                first, *measured = [shop.play(story, orders=rate * seconds, rate=rate) for _ in range(runs + 1)]
                with shop.kept("time_views", log=Path(folder) / "times.log"):
                    both = [shop.play(story, orders=rate * seconds, rate=rate) for _ in range(runs)]
    _report(story, first, measured, both, rate=rate)


@dataclass
class Shop:
    """The running shop. The last watch gets the calls of the fraud handler."""

    road: Road
    traffic: ShopTraffic
    watches: list[LatencyWatch] = field(default_factory=list)

    @contextmanager
    def kept(self, name: str, *, log: Path) -> Iterator[None]:
        """Run the runner of one of the shop's groups in a process; the block begins when it holds the group."""
        group, definition = GROUPS[name], f"sample_app.views:{name}"
        own = {**of_broker(self.road.settings), "FACTFOLD_VIEWS_URL": self.road.views_url}
        store = PostgresTableStore(self.road.views_url)
        role = runner_of(store.serving_state(group.name).run)
        with closing(store), running_command(f"projections run {definition}", own, log=log):
            wait_until(lambda: store.is_held(group.name, role=role), deadline=120, what=f"{name} held by a runner")
            yield

    def play(self, story: Story, *, orders: int, rate: int) -> Run:
        """Send orders at a rate and return the milliseconds that they waited."""
        watch = LatencyWatch(self.road, topic=Order.category, view="order_details", key="order_id")
        self.watches.append(watch)
        with story.step(f"run {len(self.watches)}"):
            self.traffic.receive()
            began = time.monotonic()
            with watch.watching():
                for number in range(orders):
                    time.sleep(max(0.0, began + number / rate - time.monotonic()))
                    self.traffic.order(placed=watch.accepted, suspected=watch.reaction.begin)
                watch.wait(deadline=120)
        story.say(str(watch.percentiles()))
        return watch.percentiles()


@contextmanager
def _shop(story: Story, info: StackInfo, folder: Path) -> Iterator[Shop]:
    with ExitStack() as stack:
        aggregates = [Order, InventoryItem, Payment, BrowsingSession]
        road = lay_road(info, "shop", aggregates=aggregates, tables=Base.metadata, history=["customers"])
        stack.callback(road.close)
        branches = "sample_app.payments:payment_branches"
        stack.enter_context(router_process(road.settings, branches, log=folder / "router.log"))
        traffic = ShopTraffic(road, customers=200, articles=40)
        traffic.open()
        Visitors(road).browse(50)
        with story.step("views built"), _environment(road) as environment:
            road.wait_until_captured()
            for group in GROUPS.values():
                rebuild(environment, group)
        fraud = sa.create_engine(database_url(info, "shop_fraud"))
        views = sa.create_engine(road.views_url)
        shop = Shop(road, traffic)
        remediation = Remediation(
            Dispatcher(road.store),
            database=fraud,
            views=views,
            on_called=lambda order: shop.watches[-1].reaction.end(order) if shop.watches else None,
        )
        stack.enter_context(delivered([remediation.subscription()], settings=road.settings, engine=fraud))
        yield shop


def _environment(road: Road) -> Environment:
    return Environment.open(road.settings, views_url=road.views_url, jars=spark_jars())


def _report(story: Story, first: Run, measured: list[Run], both: list[Run], *, rate: int) -> None:
    claims = [
        _claim(f"latency.{side}.{name}", measured, side, part, target)
        for side, targets in TARGETS.items()
        for name, part, target in zip(("median", "p99"), ("p50", "p99"), targets, strict=True)
    ]
    claims.append(_claim("latency.views.7", both, "view", "p50", MORE_VIEWS))
    claims.append(
        at_most(
            "latency.first_minute", ours=first["view"]["p50"], other=min(run["view"]["p50"] for run in measured),
            other_name="the best minute after it", unit="ms", n=int(first["view"]["n"]), runs=1, target=FIRST_MINUTE,
        )
    )  # fmt: skip
    path = write("latency", claims, rate=rate, first=first, all_runs=measured, with_both_groups=both)
    said = ", ".join(f"{claim.id} {claim.ours:.0f} ms" for claim in claims)
    story.say(f"{said}: see {path}")


def _claim(id: str, runs: list[Run], side: str, part: str, target: float) -> Claim:
    ours, n = min(run[side][part] for run in runs), int(min(run[side]["n"] for run in runs))
    return at_most(
        id, ours=ours, other=1.0, other_name="one millisecond", unit="ms", n=n, runs=len(runs), target=target
    )


if __name__ == "__main__":
    typer.run(main)
