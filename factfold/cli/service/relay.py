"""`factfold relay`: run, status."""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

import eventstore
from factfold import on_demand
from factfold.cli.brokers import reached_settings
from factfold.cli.events.store import Database, Json, Schema
from factfold.cli.logs import log_to_stderr
from factfold.cli.metrics import LOCAL, MetricsHost, MetricsPort, served_metrics
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from eventstore import SqlEventStore
    from eventstore.metrics import RelayMetrics
    from eventstore.relay import RelayStatus

app = typer.Typer(help="The event store published to Kafka without Kafka Connect.", no_args_is_help=True)


@app.callback()
def relays() -> None:
    """The event store published to Kafka without Kafka Connect."""
    log_to_stderr()


@app.command()
def run(
    database: Database,
    schema: Schema = None,
    once: Annotated[bool, typer.Option("--once", help="Stop when the topics hold every event.")] = False,
    ignored_slots: Annotated[
        list[str] | None,
        typer.Option("--ignore-slot", help="A replication slot that is no outbox connector's. May be repeated."),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    as_json: Json = False,
) -> None:
    """Publish events and schemas until a signal comes. Start it twice, and the second one stands by."""

    def tell(state: str) -> None:
        echo(json.dumps({"state": state}) if as_json else state, err=not as_json)
        sys.stdout.flush()

    stop = stop_on_signal()
    settings = reached_settings(without_kafka="factfold up lets subscriptions read the event store")
    # What is imported by now stays to the end; looking through it again and again took 6 of 20 µs an event.
    gc.freeze()
    with _store(database, schema) as store, _served(store, schema, metrics_port, metrics_host) as metrics:
        relay = on_demand.Relay(store, settings, ignored_slots=ignored_slots or (), metrics=metrics)
        report = relay.run(stop=stop, once=once, on_state=tell)
    counts = dataclasses.asdict(report)
    echo(json.dumps(counts) if as_json else ", ".join(f"{count:,} {name}" for name, count in counts.items()))


def _served(
    store: SqlEventStore, schema: str | None, port: int | None, host: str
) -> AbstractContextManager[RelayMetrics | None]:
    def make() -> on_demand.RelayMetrics:
        return on_demand.RelayMetrics(schema or "store")

    def look(metrics: RelayMetrics) -> None:
        metrics.behind(on_demand.relay_status(store, eventstore.Settings()))

    return served_metrics(make, port, host, look=look)


@app.command()
def status(database: Database, schema: Schema = None, as_json: Json = False) -> None:
    """Show which relay publishes, and how many events each topic lacks. Exit code 3 if no relay publishes."""
    with _store(database, schema) as store:
        status = on_demand.relay_status(store, eventstore.Settings())
    if as_json:
        echo(json.dumps(_described(status)))
    else:
        echo(status.leader or "nobody publishes")
        for category in status.waiting:
            echo(f"{category.topic}: {category.events:,} events wait, {_age(category.oldest):,.1f} s")
    if status.leader is None:
        raise typer.Exit(3)


def _store(database: str, schema: str | None) -> eventstore.SqlEventStore:
    return eventstore.SqlEventStore(database, schema=schema)


def _described(status: RelayStatus) -> dict[str, object]:
    categories = [
        {"category": one.category, "topic": one.topic, "waiting": one.events, "seconds": round(_age(one.oldest), 3)}
        for one in status.waiting
    ]
    return {"leader": status.leader, "categories": categories}


def _age(oldest: datetime | None) -> float:
    return 0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds())
