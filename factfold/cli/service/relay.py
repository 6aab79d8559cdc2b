"""`factfold relay`: run, status."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import eventstore
from factfold import on_demand
from factfold.cli.events.store import Store
from factfold.cli.options import Commands, option
from factfold.cli.running import Served, reached_settings, stop_on_signal
from factfold.cli.show import Out, answer

if TYPE_CHECKING:
    from eventstore import Settings, SqlEventStore
    from eventstore.metrics import RelayMetrics

app = Commands("The event store published to Kafka without Kafka Connect.")


@app.command()
def run(
    store: Store,
    served: Served,
    out: Out,
    once: Annotated[bool, option("--once", "Stop when the topics hold every event.")] = False,
    ignored_slots: Annotated[
        list[str] | None, option("--ignore-slot", "A replication slot that is no outbox connector's. May be repeated.")
    ] = None,
) -> None:
    """Publish events and schemas until a signal comes. Start it twice, and the second one stands by."""
    stop = stop_on_signal()
    settings = reached_settings(without_kafka="factfold up lets subscriptions read the event store")
    # What is imported by now stays to the end; looking through it again and again took 6 of 20 µs an event.
    gc.freeze()
    with store.made() as opened:

        def look(metrics: RelayMetrics) -> None:
            metrics.behind(on_demand.relay_status(opened, eventstore.Settings()))

        with served.metrics(lambda: on_demand.RelayMetrics(store.schema or "store"), look) as metrics:
            relay = on_demand.Relay(opened, settings, ignored_slots=ignored_slots or (), metrics=metrics)
            report = relay.run(stop=stop, once=once, on_state=out.state)
    out.counts(report)


@app.command()
def status(store: Store, out: Out) -> None:
    """Show which relay publishes, and how many events each topic lacks. Exit code 3 if no relay publishes."""
    with store.made() as opened:
        standing = relay_standing(opened, eventstore.Settings())
    lines = (f"{one.topic}: {one.waiting:,} events wait, {one.seconds:,.1f} s" for one in standing.categories)
    out.show(standing, [standing.leader or "nobody publishes", *lines])
    answer(standing.leader is not None)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the topic of a category lacks: events, and the age of the oldest of them."""

    category: str
    topic: str
    waiting: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RelayStanding:
    """The leader, None if no relay leads, and what waits."""

    leader: str | None
    categories: tuple[Waiting, ...]

    @property
    def events(self) -> int:
        """How many events wait."""
        return sum(one.waiting for one in self.categories)

    @property
    def seconds(self) -> float:
        """The age of the oldest event that waits."""
        return max((one.seconds for one in self.categories), default=0.0)


def relay_standing(store: SqlEventStore, settings: Settings) -> RelayStanding:
    """Look at the relay of a store, for the command and for the console."""
    status, now = on_demand.relay_status(store, settings), datetime.now(UTC)
    waiting = (
        Waiting(one.category, one.topic, one.events, round(max(0.0, (now - (one.oldest or now)).total_seconds()), 3))
        for one in status.waiting
    )
    return RelayStanding(status.leader, tuple(waiting))
