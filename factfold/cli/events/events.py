"""`factfold events`: tail, show, replay."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

import eventstore
from eventstore.errors import DeclarationError, NotFound
from eventstore.inspection.stream_states import event_at
from factfold import on_demand
from factfold.cli.events.entry_display import entry_as_json, masked_entries, print_entries, print_entry
from factfold.cli.events.logs_to_read import Chosen, LogPlace, no_log
from factfold.cli.events.store import MaybeStore, Store, existing_store
from factfold.cli.events.subscriptions import Target, load_subscription
from factfold.cli.keys import NamedKeys, TopicKeys
from factfold.cli.options import Commands, argument, definition, option, setting
from factfold.cli.running import stop_on_signal
from factfold.cli.show import Out, echo, spinner
from factfold.cli.views.branches import load_branches

if TYPE_CHECKING:
    from eventstore import SqlEventStore, Subscription
    from eventstore.backends.sql.replaying import ReplayPlan
    from eventstore.inspection.entries import Entry
    from eventstore.inspection.selection import Selection

app = Commands("Events: look at them, and deliver some again.")

_PLACE = re.compile(r"(?:(?P<topic>[A-Za-z0-9._-]+)\[)?(?P<partition>\d+)\]?@(?P<offset>\d+)")


@app.command()
def tail(
    place: LogPlace,
    chosen: Chosen,
    keys: TopicKeys,
    out: Out,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="How many of the last events.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until a signal.")] = False,
) -> None:
    """Show the last events of a store, or the last records of a topic. --json prints one line of JSON each."""
    selection = chosen.selection()
    stop = stop_on_signal() if follow else None
    with place.opened(keys) as log:
        entries = log.last(selection, limit=last) if stop is None else log.follow(selection, limit=last, stop=stop)
        print_entries(entries, out)


@app.command()
def show(
    event: Annotated[str, argument("Its id, or its place: order-o1@3. With --topic partition and offset: 2@17.")],
    place: LogPlace,
    keys: TopicKeys,
    out: Out,
) -> None:
    """Show one event of a store, or one record of a topic, in full."""
    entry = _in_store(event, place.store, keys) if place.topic is None else _in_topic(event, place.topic, keys)
    if out.as_json:
        out.show(entry_as_json(entry), "")
    else:
        print_entry(entry)


@app.command()
def replay(
    subscription: Target,
    store: Store,
    choice: Chosen,
    named: NamedKeys,
    out: Out,
    from_version: Annotated[int | None, option("--from", "Not before this version.", min=0)] = None,
    to_version: Annotated[int | None, option("--to", "Not after this version.", min=0)] = None,
    everything: Annotated[bool, option("--all", "Every event that the handler takes.")] = False,
    after: Annotated[
        str | None, option("--after", "Go on after this position, which an interrupted replay printed.")
    ] = None,
    branches: Annotated[
        str | None, definition("The branches of a branch topic, as module:name.", "branches", name="--branches")
    ] = None,
    inbox_url: Annotated[
        str | None, setting("--inbox-url", "SQLAlchemy URL of the handler's database. Default: the store's.")
    ] = None,
    yes: Annotated[bool, option("--yes", "Deliver. Without it, show what would be delivered.")] = False,
) -> None:
    """Deliver chosen events of a store again to one subscription, although its inbox knows them.

    Every effect of the handler takes place again. Without --yes nothing is called and nothing changes.
    """
    declared = load_subscription(subscription)
    chosen = choice.selection(from_version=from_version, to_version=to_version)
    _require_choice(chosen, everything=everything or after is not None)
    begun = None if after is None else on_demand.parse_position(after)
    with ExitStack() as opening:
        opened = opening.enter_context(store.opened(named.keys))
        again = _replay(opening, opened, declared, chosen, inbox_url, branches, after=begun)
        if not yes:
            _tell_plan(again.plan(), declared, opened, out)
            return
        with spinner("handling events again") as tell:
            report = again.run(on_progress=lambda now: tell(f"{now.handled:,} events handled again"))
    overtaken = f", {report.overtaken:,} were handled meanwhile" if report.overtaken else ""
    fields = {"delivered": True, "handled": report.handled, "overtaken": report.overtaken}
    reached = report.reached and report.reached.text
    out.show({**fields, "reached": reached}, f"{report.handled:,} events handled again{overtaken}")


def _in_store(event: str, place: MaybeStore, keys: TopicKeys) -> Entry:
    if place.database is None:
        raise no_log()
    stream, _, version = event.rpartition("@")
    with existing_store(place.database, place.schema, keys=keys.of_store) as store:
        log = on_demand.StoreLog(store)
        if stream and version.isdecimal():
            recorded = event_at(store, stream, version=int(version))
        else:
            recorded = store.find(_id(event, "order-o1@3")) or _none(event, log.name)
        return log.entry(recorded)


def _in_topic(event: str, topic: str, keys: TopicKeys) -> Entry:
    place = _PLACE.fullmatch(event)
    with keys.of_topics() as held, on_demand.TopicLog(topic, eventstore.Settings(), keys=held) as log:
        if place is None:
            return log.find(_id(event, "2@17")) or _none(event, topic)
        if place["topic"] not in (None, topic):
            raise DeclarationError(f"{event} is not in {topic}", remedy=f"say --topic {place['topic']}")
        return log.at(int(place["partition"]), int(place["offset"]))


def _id(text: str, example: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise DeclarationError(
            f"{text!r} is neither the id of an event nor a place", remedy=f"give a UUID, or a place such as {example}"
        ) from None


def _none(event: str, where: str) -> Any:
    raise NotFound(
        f"no event has the id {event} in {where}",
        remedy="check the id and the store or topic that you read. Events of deleted streams are not shown",
        place=where,
        code="events-not-found",
    )


def _require_choice(chosen: Selection, *, everything: bool) -> None:
    if chosen.is_everything and not everything:
        raise DeclarationError(
            "no events are chosen to be delivered again",
            remedy="choose some: --stream, --type, --since, --correlation, or say --all",
        )


def _replay(
    opened: ExitStack, store: SqlEventStore, declared: Subscription[..., Any], chosen: Selection,
    inbox_url: str | None, branches: str | None, **more: Any,
) -> on_demand.Replay:  # fmt: skip

    if inbox_url is not None:
        more["engine"] = opened.enter_context(on_demand.opened_engine(inbox_url))
    if branches is not None:
        more |= _of_branch(store, declared, branches)
    return on_demand.Replay(store, declared, chosen, **more)


def _of_branch(store: SqlEventStore, declared: Subscription[..., Any], spec: str) -> dict[str, Any]:
    """The category and the predicate of the branch that a subscription reads; DeclarationError."""
    branches = load_branches(spec)
    names = [name for name, topic in branches.topics.items() if topic in declared.chosen([topic])]
    if len(names) != 1:
        raise DeclarationError(
            f"{declared.name} reads {declared.reads}, which is not one branch of {branches.topic}",
            remedy=f"name the branches of its topic. These are {', '.join(branches.topics.values())}",
            place=spec,
        )

    def is_of_branch(event: Any) -> bool:
        return branches.branch_of(event, schema=store.schema(event.schema_id)) == names[0]

    return {"category": branches.aggregate.category, "branch": is_of_branch}


def _tell_plan(plan: ReplayPlan, declared: Subscription[..., Any], store: SqlEventStore, out: Out) -> None:
    first = masked_entries(store, plan.first)
    if out.as_json:
        fields = {"delivered": False, "events": plan.events, "known": plan.known, "types": plan.types}
        out.show(fields | {"first": [entry_as_json(one) for one in first]}, "")
        return
    echo(f"{plan.events:,} events for {declared.name}, group {declared.group}. Its inbox knows {plan.known:,}")
    for kind, count in plan.types.items():
        echo(f"  {kind}: {count:,}")
    print_entries(first, out)
    echo("nothing was delivered: repeat the command with --yes")
