"""`factfold relay`: run, status."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import eventstore
from factfold import on_demand
from factfold.cli.events.store import Store
from factfold.cli.options import Commands, option
from factfold.cli.running import Served, reached_settings, stop_on_signal
from factfold.cli.show import Out, answer

if TYPE_CHECKING:
    from eventstore.metrics import RelayMetrics
    from eventstore.relay import RelayStatus

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
        status = on_demand.relay_status(opened, eventstore.Settings())
    out.show(_described(status), _lines(status))
    answer(status.leader is not None)


def _lines(status: RelayStatus) -> Iterator[str]:
    yield status.leader or "nobody publishes"
    for category in status.waiting:
        yield f"{category.topic}: {category.events:,} events wait, {age(category.oldest):,.1f} s"


def _described(status: RelayStatus) -> dict[str, object]:
    categories = [
        {"category": one.category, "topic": one.topic, "waiting": one.events, "seconds": round(age(one.oldest), 3)}
        for one in status.waiting
    ]
    return {"leader": status.leader, "categories": categories}


def age(oldest: datetime | None) -> float:
    """The seconds since a time, 0 without one."""
    return 0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds())
