"""guarantees.*: what each guarantee of a subscription costs, and what a queue costs, in one run.

The same topic, handlers that do nothing, batches of the same size; a new group each time, alternating. Of each ratio
the median of the runs counts: both sides of one run had the same machine. The first batch, which waits for the group,
is not counted. At most once commits the offsets before each batch and waits for that; at least once commits behind
it, in the background; effectively once adds the inbox in PostgreSQL and the handler's transaction. A queue
acknowledges each record, and waits for that behind each batch. What it does not show: handlers that do something,
several members, servers on machines of their own.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import sqlalchemy as sa
import typer

from benchmarks.machine import Claim, at_least, write
from benchmarks.subscribe import BATCH, Payment, ours, rate, served
from eventstore import Settings, queue, subscription
from eventstore.delivery.subscriptions import Subscription
from sample_app.story import Story

TARGETS = {"at-most-once": 0.5, "effectively-once": 0.4, "queue": 0.2}


def main(
    records: Annotated[int, typer.Option(help="How many records.")] = 100_000,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Use the servers of this stack.")] = None,
) -> None:
    """Measure and write build/bench/guarantees.json."""
    story = Story("guarantees")
    with served(story, stack, records) as (settings, engine, topic):
        measured = [_round(story, settings, engine, topic, records) for _ in range(runs)]
    claims = [_claim(measured, name, records) for name in TARGETS]
    path = write("guarantees", claims, rates=measured)
    story.say(f"to at least once: {', '.join(f'{one.id} {one.ratio}' for one in claims)}: {path}")


def _round(story: Story, settings: Settings, engine: sa.Engine, topic: str, records: int) -> dict[str, float]:
    rates = {name: rate(ours(settings, engine, declared), records) for name, declared in _declared(topic).items()}
    story.say(", ".join(f"{name} {number:,.0f}" for name, number in rates.items()) + " records/s")
    return rates


def _declared(topic: str) -> dict[str, Subscription[..., Any]]:
    def plain(event: Payment.Received) -> None: ...
    def with_tx(event: Payment.Received, tx: sa.Connection) -> None: ...

    group = uuid.uuid4().hex
    return {
        "at-most-once": subscription(topic, group=f"m{group}", guarantee="at-most-once", batch=BATCH)(plain),
        "at-least-once": subscription(topic, group=f"l{group}", batch=BATCH)(plain),
        "effectively-once": subscription(topic, group=f"e{group}", batch=BATCH)(with_tx),
        "queue": queue(topic, group=f"q{group}", batch=BATCH)(plain),
    }


def _claim(measured: list[dict[str, float]], name: str, records: int) -> Claim:
    by_ratio = sorted(measured, key=lambda one: one[name] / one["at-least-once"])
    middle = by_ratio[len(by_ratio) // 2]
    return at_least(
        f"guarantees.{name}", ours=middle[name], other=middle["at-least-once"], other_name="at least once",
        unit="records/s", n=records, runs=len(measured), target=TARGETS[name],
    )  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
