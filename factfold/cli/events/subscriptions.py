"""`factfold subscriptions`: run, lag, reset."""

from __future__ import annotations

import dataclasses
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eventstore
from eventstore import Restarts
from factfold import on_demand
from factfold.cli.brokers import reached_settings
from factfold.cli.completions import completes
from factfold.cli.definitions import load_definition
from factfold.cli.keys import KeysUrl, MasterKeysIfAny, open_keys
from factfold.cli.logs import log_to_stderr
from factfold.cli.metrics import LOCAL, MetricsHost, MetricsPort, served_metrics
from factfold.cli.restarts import LIMIT, RestartLimit
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal
from factfold.cli.tracing import Tracing, spans_if

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore import Subscription
    from eventstore.delivery import DeliveryReport
    from eventstore.delivery.subscriptions import Start
    from eventstore.metrics import SubscriptionMetrics

app = typer.Typer(help="Handlers that react to events.", no_args_is_help=True)

Target = Annotated[
    str,
    typer.Argument(
        help="The subscription, as module:name.",
        metavar="MODULE:NAME",
        autocompletion=completes("subscription", "queue"),
    ),
]
Topic = Annotated[str, typer.Argument(help="The topic the group reads, or several with commas between them.")]
Group = Annotated[str, typer.Argument(help="The group.")]
Database = Annotated[
    str | None,
    typer.Option("--inbox-url", envvar="FACTFOLD_INBOX_URL", help="SQLAlchemy URL of the handler's database."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def subscriptions() -> None:
    """Handlers that react to events."""
    log_to_stderr()


@app.command()
def run(
    subscription: Target,
    database: Database = None,
    master_keys: MasterKeysIfAny = None,
    keys_url: KeysUrl = None,
    restarts: RestartLimit = LIMIT,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    tracing: Tracing = False,
    as_json: Json = False,
) -> None:
    """Deliver events to a handler until a signal comes. Start it several times to share the load."""
    declared, stop, spans = load_subscription(subscription), stop_on_signal(), spans_if(tracing)
    settings = reached_settings(without_kafka="factfold up lets subscriptions read the event store")
    with ExitStack() as opened:
        metrics = opened.enter_context(_served(declared, metrics_port, metrics_host))
        engine, keys = opened.enter_context(_engine(database)), opened.enter_context(open_keys(master_keys, keys_url))
        report = eventstore.run_subscription(
            declared, stop=stop, settings=settings, engine=engine, keys=keys, restarts=Restarts(limit=restarts),
            on_open=partial(_print_following, as_json=as_json), on_batch=partial(_tell, as_json=as_json),
            metrics=metrics, around=[] if spans is None else [spans.handling],
        )  # fmt: skip
        _tell(report, as_json=as_json)


def _served(
    declared: Subscription[..., Any], port: int | None, host: str
) -> AbstractContextManager[SubscriptionMetrics | None]:
    def make() -> on_demand.SubscriptionMetrics:
        return on_demand.SubscriptionMetrics(declared.group)

    def look(metrics: SubscriptionMetrics) -> None:
        metrics.look(declared, eventstore.Settings())

    return served_metrics(make, port, host, look=look)


def _print_following(*, as_json: bool) -> None:
    echo(json.dumps({"state": "following"}) if as_json else "following", err=not as_json)
    sys.stdout.flush()
    # What is imported by now stays to the end; looking through it again and again took a third of the time.
    gc.freeze()


@app.command("list")
def list_groups(as_json: Json = False) -> None:
    """List the consumer groups of the cluster: state, members and lag in the topics that each has read."""
    groups = on_demand.group_statuses(eventstore.Settings())
    if as_json:
        shown = [
            {"group": one.name, "state": one.state, "members": one.members, "topics": sorted(one.topics),
             "records": one.lag.records, "seconds": one.lag.seconds}
            for one in groups
        ]  # fmt: skip
        echo(json.dumps(shown))
        return
    for one in groups:
        behind = f"{one.lag.records:,} records, {one.lag.seconds:,.1f} s"
        echo(f"{one.name}: {one.state}, {one.members} members, {behind}, {', '.join(sorted(one.topics)) or 'no topic'}")
    if not groups:
        echo("no group has read from this cluster")


@app.command()
def lag(topic: Topic, group: Group, as_json: Json = False) -> None:
    """Show how far a group is behind: records and seconds, by partition, its retry topics included."""
    settings = eventstore.Settings()
    on_demand.require_group(settings, group)
    lag = on_demand.subscription_lag(
        settings, on_demand.read_topics(settings, topic.split(","), group=group), group=group
    )
    if as_json:
        parts = [dataclasses.asdict(partition) for partition in lag.partitions]
        echo(json.dumps({"records": lag.records, "seconds": lag.seconds, "partitions": parts}))
        return
    for partition in lag.partitions:
        echo(f"{partition.topic}[{partition.partition}]: {partition.records:,} records, {partition.seconds:,.1f} s")
    echo(f"{group}: {lag.records:,} records, {lag.seconds:,.1f} s")


@app.command()
def reset(
    topic: Topic,
    group: Group,
    to: Annotated[
        str, typer.Option("--to", help="beginning, end, a time (ISO 8601 with zone), or offsets: 0=12,1=30.")
    ],
    database: Database = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Empty the group's inbox in --inbox-url, so that events are handled again.")
    ] = False,
) -> None:
    """Move a group without members to another place of its topics.

    Events in the inbox are not handled again, wherever the group is. --forget empties the inbox.
    """
    if forget and database is None:
        raise typer.BadParameter("--forget needs --inbox-url, where the inbox is")
    topics, start = topic.split(","), parse_start(to)
    if len(topics) > 1 and isinstance(start, dict):
        raise typer.BadParameter(f"{to!r} does not say of which topic: reset one topic at a time")
    moved = {one: on_demand.reset_group(eventstore.Settings(), one, group=group, to=start) for one in topics}
    if forget:
        echo(f"{sum(_forget(database, one, group) for one in topics):,} events forgotten")
    for one, offsets in moved.items():
        for partition, offset in sorted(offsets.items()):
            echo(f"{one}[{partition}]: {offset}")


def parse_start(text: str) -> Start:
    """The place that beginning, end, an ISO 8601 time or `0=12,1=30` means; BadParameter where it is none of them."""
    if text == "beginning" or text == "end":
        return text  # type: ignore[return-value]  # mypy does not narrow a str to a literal by ==
    try:
        if "=" in text:
            return {int(p): int(offset) for p, _, offset in (part.partition("=") for part in text.split(","))}
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither beginning, end, a time, nor offsets like 0=12,1=30") from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone: write it as {text}+00:00 or {text}Z")
    return moment


def load_subscription(spec: str) -> eventstore.Subscription[..., Any]:
    """The subscription that `module:name` names; DeclarationError says which half is wrong."""
    return load_definition(spec, eventstore.Subscription, what="subscription", example="shop.fraud:review")


def _tell(report: DeliveryReport, *, as_json: bool) -> None:
    counts = dataclasses.asdict(report)
    echo(json.dumps(counts) if as_json else ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    sys.stdout.flush()


def _forget(database: str | None, topic: str, group: str) -> int:
    with _engine(database) as engine:
        return 0 if engine is None else on_demand.Inbox(engine, group, topic=topic).forget_all()


@contextmanager
def _engine(url: str | None) -> Iterator[Engine | None]:
    if url is None:
        yield None
        return

    with on_demand.opened_engine(url) as engine:
        yield engine
