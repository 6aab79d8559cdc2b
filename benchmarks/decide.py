"""decide.*: load an aggregate, decide, append, at lengths of 10, 1,000 and 10,000 events; and reading the whole log.

Ours is `Dispatcher.send` with and without aggregate snapshots, without a cache; pyeventsourcing is repository.get, a
command, save, in its default mode, with and without its snapshots. Ten aggregates in turn, one PostgreSQL, alternating,
best of the runs. ``decide.flat`` is our rate at 10,000 events with snapshots against that at 10. Reading: all events of
the store, decoded into plain values, in pages; pyeventsourcing selects notifications in pages of 1,000 and maps them to
objects. What it does not show: aggregates with a large state, whose snapshots cost more than their last events.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from typing import Annotated

import sqlalchemy as sa
import typer

from benchmarks.append import Dog
from benchmarks.machine import Claim, at_least, write
from benchmarks.peer import Pyeventsourcing
from eventstore import NO_STREAM, Aggregate, Dispatcher, SqlEventStore, command
from eventstore.snapshots import Snapshots
from factfold.stack import LocalStack
from sample_app.story import Story

LENGTHS = (10, 1_000, 10_000)
AGGREGATES = 10
EVERY = 100
TARGET = 3.0


class School(Aggregate, category="dog"):
    """A dog that counts its tricks."""

    tricks: int = 0

    Registered = Dog.Registered
    TrickAdded = Dog.TrickAdded

    @command
    def add_trick(self, trick: str) -> None:
        """Teach it one."""
        self.emit(Dog.TrickAdded(trick=trick))

    def on_trick_added(self, e: Dog.TrickAdded) -> None:
        """Count it."""
        self.tricks += 1


def main(
    seconds: Annotated[float, typer.Option(help="How long each measurement lasts.")] = 4.0,
    runs: Annotated[int, typer.Option(help="Alternating runs. The best counts.")] = 3,
    stack: Annotated[str | None, typer.Option(help="Use the servers of this stack.")] = None,
) -> None:
    """Measure and write build/bench/decide.json."""
    story = Story("decide")
    with LocalStack(stack or "bench", ephemeral=stack is None) as servers:
        url = servers.info.postgres.url()
        engine = sa.create_engine(url)
        with SqlEventStore(url, schema=f"bench_{uuid.uuid4().hex[:8]}") as store:
            store.create_tables()
            store.register(School)
            rounds = [_round(story, store, Pyeventsourcing(engine), seconds) for _ in range(runs)]
        engine.dispose()
    best = {name: max(rates[name] for rates in rounds) for name in rounds[0]}
    claims = _claims(best, runs=runs)
    path = write("decide", claims, rates={name: round(rate, 1) for name, rate in best.items()})
    story.say(", ".join(f"{claim.id} {claim.ratio}" for claim in claims) + f": {path}")


def _round(story: Story, store: SqlEventStore, peer: Pyeventsourcing, seconds: float) -> dict[str, float]:
    rates: dict[str, float] = {}
    plain, snapshots = Dispatcher(store), Dispatcher(store, snapshots=Snapshots(store, every=EVERY))
    for length in LENGTHS:
        rates[f"ours.{length}"] = _commands(store, plain, length, seconds)
        rates[f"peer.{length}"] = peer.rate("decide", length, round(seconds))
        rates[f"ours.{length}.snapshots"] = _commands(store, snapshots, length, seconds)
        rates[f"peer.{length}.snapshots"] = peer.rate("decide", length, round(seconds), EVERY)
    rates["ours.read"], rates["peer.read"] = _rate(lambda: sum(1 for _ in store.read_all())), peer.rate("read")
    story.say(", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()))
    return rates


def _commands(store: SqlEventStore, dispatcher: Dispatcher, length: int, seconds: float) -> float:
    """Commands a second on aggregates of that length."""
    ids = [str(uuid.uuid4()) for _ in range(AGGREGATES)]
    events = [Dog.Registered(name="Fido"), *(Dog.TrickAdded(trick="roll") for _ in range(length - 1))]
    for id in ids:
        store.append(f"dog-{id}", events, expected=NO_STREAM)
        if dispatcher.snapshots is not None:
            dispatcher.take_snapshot(School, id)
    count, begun = 0, time.perf_counter()
    for id in itertools.cycle(ids):
        dispatcher.send(id, School.add_trick, "sit")
        count += 1
        if time.perf_counter() - begun > seconds:
            break
    return count / (time.perf_counter() - begun)


def _rate(work: Callable[[], int]) -> float:
    begun = time.perf_counter()
    return work() / (time.perf_counter() - begun)


def _claims(best: dict[str, float], *, runs: int) -> list[Claim]:
    def claim(id: str, ours: str, other: str, name: str, target: float, unit: str = "commands/s") -> Claim:
        rates = {"ours": best[ours], "other": best[other]}
        return at_least(id, **rates, other_name=name, unit=unit, n=AGGREGATES, runs=runs, target=target)

    name = Pyeventsourcing.name
    shortest, longest = LENGTHS[0], LENGTHS[-1]
    return [
        *(claim(f"decide.peer.{n}", f"ours.{n}", f"peer.{n}", name, TARGET) for n in LENGTHS),
        *(
            claim(f"decide.snapshots.{n}", f"ours.{n}.snapshots", f"peer.{n}.snapshots", f"{name}, snapshots", TARGET)
            for n in LENGTHS
        ),
        claim("decide.flat", f"ours.{longest}.snapshots", f"ours.{shortest}.snapshots", f"ours at {shortest}", 0.8),
        claim("read.all", "ours.read", "peer.read", name, TARGET, "events/s"),
    ]  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
