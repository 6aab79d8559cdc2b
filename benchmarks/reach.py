"""reach.*: what a live batch of a query that is cut into stages costs as its tables grow, if its changes reach no more.

Four queries over 100,000 and 1,000,000 orders in PostgreSQL, ten of each customer: batches of 1,000 changed orders, the
best of several. What it does not show: changes that reach more rows, such as those of a group of all rows, more cores,
a database on a machine of its own.
"""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.incremental import CHANGES, GROWTH, best
from benchmarks.machine import at_most, write
from benchmarks.shop_log import ShopLog
from eventstore import Settings
from factfold.stack import LocalStack, spark_jars
from projections import Environment, open_runner, rebuild
from sample_app.road import database_url
from sample_app.story import Story

SIZES = (100_000, 1_000_000)
QUERIES = {
    "joined": "SELECT a.id, b.id AS other FROM orders a JOIN orders b"
    " ON a.customer_id = b.customer_id AND a.amount < b.amount",
    "grouped": "SELECT c.city, count(*) AS n, sum(o.amount) AS total FROM orders o, customers c"
    " WHERE o.customer_id = c.id GROUP BY c.city",
    "first": "SELECT id, amount FROM (SELECT *, row_number() OVER (PARTITION BY customer_id ORDER BY amount DESC) AS n"
    " FROM orders) WHERE n <= 3",
    "without": "SELECT id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)",
}


def main(
    runs: Annotated[int, typer.Option(help="Batches at each size. The best counts.")] = 5,
    largest: Annotated[int, typer.Option(help="The larger state.")] = SIZES[-1],
) -> None:
    """Measure and write build/bench/reach.json."""
    story = Story("reach.*")
    seconds: dict[str, list[float]] = {name: [] for name in QUERIES}
    with LocalStack("bench", ephemeral=True) as servers:
        settings, views_url = Settings.for_broker(servers.info.bootstrap_servers), database_url(servers.info, "bench")
        with Environment.open(settings, views_url=views_url, jars=spark_jars(), memory="3g") as environment:
            for size in (SIZES[0], largest):
                log = ShopLog(settings, customers=size // 10)
                log.insert(size)
                for name, text in QUERIES.items():
                    group = log.group_of(name, text)
                    with story.step(f"{size:,} orders, {name}"):
                        rebuild(environment, group)
                        with open_runner(environment, group) as runner:
                            seconds[name].append(best(runner, log, CHANGES, runs))
                    story.say(f"{CHANGES:,} changes: {seconds[name][-1]:.3f} s")
    claims = [
        at_most(
            f"reach.{name}", ours=large, other=small, other_name=f"at {SIZES[0]:,} rows", unit="s", n=largest,
            runs=runs, target=GROWTH,
        )
        for name, (small, large) in seconds.items()
    ]  # fmt: skip
    story.say(f"{', '.join(f'{c.id} {c.ratio}' for c in claims)}: see {write('reach', claims)}")


if __name__ == "__main__":
    typer.run(main)
