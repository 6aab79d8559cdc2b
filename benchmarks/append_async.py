"""append.tasks.*: the append of AsyncSqlEventStore against that of SqlEventStore, on one PostgreSQL.

Each append is a transaction: a new stream with one event of about 30 bytes of Avro. One thread against one task, then
16 threads against 16 tasks of one loop. Alternating, best of the runs. What it does not show: what tasks are for,
thousands of requests that wait, each of which would be a thread.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from benchmarks.append import Dog
from benchmarks.machine import Claim, at_least, write
from eventstore import NO_STREAM, AsyncSqlEventStore, SqlEventStore
from factfold.stack import LocalStack
from sample_app.story import Story

WRITERS = (1, 16)
# A loop is one thread: what several processes of a service share, it does alone.
TARGET = 0.6


FIDO = Dog.Registered(name="Fido")


def main(
    seconds: Annotated[float, typer.Option(help="How long each measurement lasts.")] = 4.0,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Use the servers of this stack.")] = None,
) -> None:
    """Measure and write build/bench/append_async.json."""
    story = Story("append_async")
    with LocalStack(stack or "bench", ephemeral=stack is None) as servers:
        url, schema = servers.info.postgres.url(), f"bench_{uuid.uuid4().hex[:8]}"
        with SqlEventStore(url, schema=schema) as store:
            store.create_tables()
            store.register(Dog)
            rounds = [_round(story, store, seconds) for _ in range(runs)]
    best = {name: max(rates[name] for rates in rounds) for name in rounds[0]}
    claims = [_claim(best, writers, runs=runs, seconds=seconds) for writers in WRITERS]
    path = write("append_async", claims, rates={name: round(rate) for name, rate in best.items()})
    story.say(", ".join(f"{claim.id} {claim.ratio}" for claim in claims) + f": {path}")


def _claim(rates: dict[str, float], writers: int, *, runs: int, seconds: float) -> Claim:
    ours, other = rates[f"tasks.{writers}"], rates[f"threads.{writers}"]
    name, appends = f"append.tasks.{writers}", round(ours * seconds)
    return at_least(
        name, ours=ours, other=other, other_name="threads", unit="appends/s", n=appends, runs=runs, target=TARGET
    )


def _round(story: Story, store: SqlEventStore, seconds: float) -> dict[str, float]:
    rates = {}
    for writers in WRITERS:
        rates[f"threads.{writers}"] = _threads(store, writers, seconds) / seconds
        rates[f"tasks.{writers}"] = asyncio.run(_tasks(store, writers, seconds)) / seconds
    story.say(", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) + " appends/s")
    return rates


def _threads(store: SqlEventStore, writers: int, seconds: float) -> int:
    """Count the appends of so many threads."""
    until = time.perf_counter() + seconds

    def work(_: int) -> int:
        count = 0
        while time.perf_counter() < until:
            store.append(f"dog-{uuid.uuid4()}", [FIDO], expected=NO_STREAM)
            count += 1
        return count

    with ThreadPoolExecutor(writers) as pool:
        return sum(pool.map(work, range(writers)))


async def _tasks(store: SqlEventStore, writers: int, seconds: float) -> int:
    """Count the appends of so many tasks."""
    async with AsyncSqlEventStore(store.engine.url, schema=store.tables.schema) as twin:
        await twin.register(Dog)
        until = time.perf_counter() + seconds

        async def work() -> int:
            count = 0
            while time.perf_counter() < until:
                await twin.append(f"dog-{uuid.uuid4()}", [FIDO], expected=NO_STREAM)
                count += 1
            return count

        return sum(await asyncio.gather(*(work() for _ in range(writers))))


if __name__ == "__main__":
    typer.run(main)
