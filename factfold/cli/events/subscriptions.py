"""`factfold subscriptions`: run, lag, reset."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eventstore
from eventstore import Restarts
from eventstore.errors import DeclarationError, InvalidArgument
from factfold import on_demand
from factfold.cli.definitions import load_definition
from factfold.cli.events.entries import parse_moment
from factfold.cli.keys import StoredKeys
from factfold.cli.options import Commands, argument, definition, option, setting
from factfold.cli.running import Running, Tracing, reached_settings, spans_if, stop_on_signal
from factfold.cli.show import Out, echo

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore.delivery.source import Lag
    from eventstore.delivery.subscriptions import Start
    from eventstore.kafka.groups import GroupStatus

app = Commands("Handlers that react to events.")

Target = Annotated[str, definition("The subscription, as module:name.", "subscription", "queue", metavar="MODULE:NAME")]
Topic = Annotated[str, argument("The topic the group reads, or several with commas between them.")]
Group = Annotated[str, argument("The group.")]
Database = Annotated[str | None, setting("--inbox-url", "SQLAlchemy URL of the handler's database.")]


@app.command()
def run(
    subscription: Target,
    stored: StoredKeys,
    running: Running,
    out: Out,
    database: Database = None,
    tracing: Tracing = False,
) -> None:
    """Deliver events to a handler until a signal comes. Start it several times to share the load."""
    declared, stop, spans = load_subscription(subscription), stop_on_signal(), spans_if(tracing)
    settings = reached_settings(without_kafka="factfold up lets subscriptions read the event store")
    with (
        running.metrics(
            lambda: on_demand.SubscriptionMetrics(declared.group),
            lambda metrics: metrics.look(declared, eventstore.Settings()),
        ) as metrics,
        _engine(database) as engine,
        stored.opened() as keys,
    ):
        report = eventstore.run_subscription(
            declared, stop=stop, settings=settings, engine=engine, keys=keys,
            restarts=Restarts(limit=running.restarts), on_open=lambda: _follow(out),
            on_batch=out.counts, metrics=metrics,
            around=[] if spans is None else [spans.handling],
        )  # fmt: skip
        out.counts(report)


def _follow(out: Out) -> None:
    out.state("following")
    # What is imported by now stays to the end; looking through it again and again took a third of the time.
    gc.freeze()


@app.command("list")
def list_groups(out: Out) -> None:
    """List the consumer groups of the cluster: state, members and lag in the topics that each has read."""
    groups = on_demand.group_statuses(eventstore.Settings())
    shown = [
        {"group": one.name, "state": one.state, "members": one.members, "topics": sorted(one.topics),
         "records": one.lag.records, "seconds": one.lag.seconds}
        for one in groups
    ]  # fmt: skip
    out.show(shown, list(map(_group_line, groups)) or "no group has read from this cluster")


def _group_line(one: GroupStatus) -> str:
    topics = ", ".join(sorted(one.topics)) or "no topic"
    return f"{one.name}: {one.state}, {one.members} members, {_behind(one.lag)}, {topics}"


def _behind(lag: Any) -> str:
    return f"{lag.records:,} records, {lag.seconds:,.1f} s"


@app.command()
def lag(topic: Topic, group: Group, out: Out) -> None:
    """Show how far a group is behind: records and seconds, by partition, its retry topics included."""
    settings = eventstore.Settings()
    on_demand.require_group(settings, group)
    topics = on_demand.read_topics(settings, topic.split(","), group=group)
    lag = on_demand.subscription_lag(settings, topics, group=group)
    fields = {"records": lag.records, "seconds": lag.seconds, "partitions": lag.partitions}
    out.show(fields, _lag_lines(group, lag))


def _lag_lines(group: str, lag: Lag) -> Iterator[str]:
    for one in lag.partitions:
        yield f"{one.topic}[{one.partition}]: {_behind(one)}"
    yield f"{group}: {_behind(lag)}"


@app.command()
def reset(
    topic: Topic,
    group: Group,
    to: Annotated[str, option("--to", "beginning, end, a time with zone, an age (15m), or 0=12,1=30.")],
    database: Database = None,
    forget: Annotated[
        bool, option("--forget", "Empty the group's inbox in --inbox-url, so that events are handled again.")
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
    """Return the place that beginning, end, a time or `0=12,1=30` means. Raises InvalidArgument."""
    if text == "beginning" or text == "end":
        return text  # type: ignore[return-value]  # mypy does not narrow a str to a literal by ==
    try:
        if "=" in text:
            return {int(p): int(offset) for p, _, offset in (part.partition("=") for part in text.split(","))}
        return parse_moment(text)
    except (ValueError, DeclarationError):
        raise InvalidArgument(
            f"{text!r} is no place of a topic",
            remedy="write beginning, end, 2026-11-26T12:00:00Z, 15m for as long ago, or offsets: 0=12,1=30",
        ) from None


def load_subscription(spec: str) -> eventstore.Subscription[..., Any]:
    """The subscription that `module:name` names; DeclarationError says which half is wrong."""
    return load_definition(spec, eventstore.Subscription, what="subscription", example="shop.fraud:review")


def _forget(database: str | None, topic: str, group: str) -> int:
    with _engine(database) as engine:
        return 0 if engine is None else on_demand.Inbox(engine, group).forget_all(topic)


def _engine(url: str | None) -> AbstractContextManager[Engine | None]:
    return nullcontext() if url is None else on_demand.opened_engine(url)
