"""memory.*, start.*: what each long command holds in memory, and how long short commands take.

Each long command runs against the shop's servers, with a minute of orders behind it. Its memory is the resident set of
the process and of those that it started, half a minute after it began: shared pages count in each. Short commands run
one after another, the median of several. What it does not show: memory after days, larger batches, a cold disk.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import psutil
import typer

from benchmarks.machine import Claim, at_most, write
from factfold.stack import LocalStack, spark_jars
from projections import Environment, rebuild
from sample_app.customers.model import Base
from sample_app.inventory import InventoryItem
from sample_app.orders import Order
from sample_app.payments import Payment
from sample_app.road import Road, database_url, lay_road
from sample_app.services import of_broker, running_command
from sample_app.story import Story
from sample_app.traffic import ShopTraffic
from sample_app.views import shop_views

LONG: Mapping[str, str] = {
    "runner": "projections run sample_app.views:shop_views",
    "router": "branches run sample_app.payments:payment_branches",
    "subscriber": "subscriptions run benchmarks.small_service:heard",
    "process worker": "processes run sample_app.fulfilment:Fulfilment",
    "console": "console sample_app --port 0",
}
SHORT: Mapping[str, str] = {
    "help": "--help",
    "stream": "streams show order-o1 sample_app.orders:Order",
    "events": "events tail --last 5",
    "views": "projections status",
    "lag": "subscriptions lag order bench_heard",
}
MEGABYTES = {"subscriber": 120.0, "process worker": 120.0}
SECONDS = {"help": 0.25}
_OTHERS_SECONDS = 0.8


def main(
    settle: Annotated[float, typer.Option(help="Seconds before the memory of a long command is read.")] = 30.0,
    runs: Annotated[int, typer.Option(help="Runs of each short command. The median counts.")] = 5,
) -> None:
    """Measure and write build/bench/footprint.json."""
    story, held, took = Story("memory.*, start.*"), {}, {}
    with LocalStack("bench", ephemeral=True) as servers, TemporaryDirectory() as folder, ExitStack() as stack:
        road = lay_road(servers.info, "shop", aggregates=[Order, InventoryItem, Payment], tables=Base.metadata,
                        history=["customers"])  # fmt: skip
        stack.callback(road.close)
        _fill(story, road)
        own = _environment(road, database_url(servers.info, "shop_inbox"), Path(folder))
        for name, command in LONG.items():
            with story.step(name), running_command(command, own, log=Path(folder) / "said.log") as running:
                held[name] = _megabytes(psutil.Process(running.process.pid), settle)
            story.say(f"{held[name]:.0f} MB")
        for name, command in SHORT.items():
            with story.step(name):
                took[name] = statistics.median(_seconds(command, own) for _ in range(runs))
            story.say(f"{took[name]:.2f} s")
    path = write("footprint", list(_claims(held, took, runs)), megabytes=held, seconds=took)
    story.say(f"see {path}")


def _fill(story: Story, road: Road) -> None:
    traffic = ShopTraffic(road, customers=200, articles=40)
    with story.step("orders"):
        traffic.open()
        for _ in range(600):
            traffic.order()
    with story.step("views built"):
        road.wait_until_captured()
        with Environment.open(road.settings, views_url=road.views_url, jars=spark_jars()) as environment:
            rebuild(environment, shop_views)


def _environment(road: Road, inbox: str, folder: Path) -> dict[str, str]:
    return {
        **of_broker(road.settings),
        "FACTFOLD_STORE_URL": road.engine.url.render_as_string(hide_password=False),
        "FACTFOLD_VIEWS_URL": road.views_url,
        "FACTFOLD_INBOX_URL": inbox,
        "FACTFOLD_CHECKPOINTS": str(folder),
    }


def _megabytes(process: psutil.Process, settle: float) -> float:
    time.sleep(settle)
    held = [one.memory_info().rss for one in (process, *process.children(recursive=True))]
    return round(sum(held) / 1e6, 1)


def _seconds(command: str, environment: Mapping[str, str]) -> float:
    begun = time.perf_counter()
    argv = [sys.executable, "-m", "factfold", *command.split()]
    subprocess.run(argv, env=os.environ | environment, check=True, capture_output=True)
    return round(time.perf_counter() - begun, 3)


def _claims(held: Mapping[str, float], took: Mapping[str, float], runs: int) -> Iterator[Claim]:
    for name, target in MEGABYTES.items():
        yield at_most(
            f"memory.{name.replace(' ', '_')}", ours=held[name], other=1.0, other_name="one megabyte", unit="MB", n=1,
            runs=1, target=target,
        )  # fmt: skip
    for name, seconds in took.items():
        yield at_most(
            f"start.{name}", ours=seconds, other=1.0, other_name="one second", unit="s", n=1, runs=runs,
            target=SECONDS.get(name, _OTHERS_SECONDS),
        )  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
