"""`factfold events`: tail, show, replay.

`factfold streams`: show.

`factfold trace`: a conversation as a tree of commands, events and reactions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

import eventstore
from eventstore.errors import DeclarationError, NotFound
from eventstore.inspection.store_log import event_at, stream_state
from factfold import on_demand
from factfold.cli.definitions import load_aggregate
from factfold.cli.events.entries import (
    Chosen,
    LogPlace,
    console_of_stdout,
    entry_as_json,
    masked_entries,
    no_log,
    opened_logs,
    print_entries,
    print_entry,
    state_as_json,
    trace_as_json,
)
from factfold.cli.events.store import MaybeStore, Schema, Store, Stream, existing_store
from factfold.cli.events.subscriptions import Target, load_subscription
from factfold.cli.keys import NamedKeys, ShownKeys, TopicKeys
from factfold.cli.options import Commands, argument, definition, option, setting
from factfold.cli.running import stop_on_signal
from factfold.cli.show import Out, as_line, as_pairs, as_utc, echo, printable, spinner

if TYPE_CHECKING:
    from rich.tree import Tree

    from eventstore import RecordedEvent, SqlEventStore, Subscription
    from eventstore.backends.sql.replaying import ReplayPlan
    from eventstore.inspection.selection import Entry, Selection
    from eventstore.inspection.store_log import StreamState
    from eventstore.inspection.tracing import Step, Trace

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
    from factfold.cli.views.topics import load_branches  # with the tables and views that branches are declared with

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


streams = Commands("Streams: their events and their states.")


@streams.command("show")
def show_stream(
    stream: Stream,
    store: Store,
    keys: ShownKeys,
    out: Out,
    aggregate: Annotated[
        str | None, definition("Its aggregate, for the state: module:name.", "aggregate", metavar="MODULE:NAME")
    ] = None,
    at: Annotated[int | None, option("--at", "The version to look at. Default: the last.", min=0)] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many events up to that version.")] = 20,
) -> None:
    """Show a stream's events up to a version, and with its aggregate its state there and what the event changed."""
    kind = None if aggregate is None else load_aggregate(aggregate)
    with store.opened(keys.of_store) as opened:
        event = event_at(opened, stream, version=at)
        state = None if kind is None else stream_state(opened, kind, stream, version=event.version)
        described = _described(opened, event, last=last)
    if out.as_json:
        events = {"events": [entry_as_json(entry) for entry in described["events"]]}
        out.show(described | events | state_as_json(state), "")
        return
    closed = ", archived" if described["archived"] else ""
    echo(f"{stream} at version {event.version} of {described['head']}{closed}")
    print_entries(described["events"], out)
    for line in () if state is None else _state_lines(state):
        echo(line)


def _described(store: SqlEventStore, event: RecordedEvent, *, last: int) -> dict[str, Any]:
    log = on_demand.StoreLog(store)
    first = max(0, event.version - last + 1)
    events = store.read_stream(event.stream, from_version=first, to_version=event.version)
    return {
        "stream": event.stream,
        "version": event.version,
        "head": store.head(event.stream),
        "archived": store.is_archived(event.stream),
        "events": [log.entry(one) for one in events],
    }


def _state_lines(state: StreamState) -> Iterator[str]:
    yield f"state at {as_utc(state.event.time)}"
    changes = state.changes
    for name, value in state.after.items():
        before = f"   (was {as_line(changes[name][0])})" if name in changes else ""
        yield f"  {name} = {as_line(value)}{before}"


def trace(
    correlation: Annotated[str, argument("The correlation id of the conversation.")],
    keys: TopicKeys,
    out: Out,
    databases: Annotated[list[str] | None, setting("--store-url", "A store's SQLAlchemy URL. May be repeated.")] = None,
    topics: Annotated[list[str] | None, option("--topic", "Read this topic too. May be repeated.")] = None,
    handlers: Annotated[
        list[str] | None, setting("--inbox-url", "A database with an inbox, to say what groups did. May be repeated.")
    ] = None,
    schema: Schema = None,
    data: Annotated[bool, option("--data", "The fields of each event too.")] = False,
) -> None:
    """Show what a conversation led to, each step below its cause.

    It reads every store and topic that you name.
    """
    named = databases or []
    with ExitStack() as opened, opened_logs(named, schema, topics or [], keys) as (stores, logs):
        others = [opened.enter_context(on_demand.opened_engine(url)) for url in handlers or () if url not in named]
        inboxes = [on_demand.SqlInboxes(engine) for engine in (*(store.engine for store in stores), *others)]
        conversation = on_demand.trace(correlation, logs, inboxes=inboxes)
    if out.as_json:
        out.show(trace_as_json(conversation), "")
    else:
        _tell(conversation, data=data)


def _tell(conversation: Trace, *, data: bool) -> None:
    from rich.text import Text
    from rich.tree import Tree

    events = conversation.events
    logs = list(dict.fromkeys(entry.log for entry in events))
    head = (
        f"{conversation.correlation_id}: {len(events):,} events, {as_utc(events[0].time)} to {as_utc(events[-1].time)}"
    )
    root = Tree(Text(head, style="bold"))
    branches: list[Tree] = [root]
    for step in conversation.steps:
        del branches[step.depth + 1 :]
        branch = branches[-1].add(_label(step, logs=logs, data=data))
        branches.append(branch)
        for line in _reactions(step):
            branch.add(line)
    console = console_of_stdout()
    console.print(root, no_wrap=True, overflow="ellipsis")
    for number, log in enumerate(logs, 1) if len(logs) > 1 else ():
        echo(f"[{number}] {log}")


def _label(step: Step, *, logs: list[str], data: bool) -> Any:
    from rich.text import Text

    if step.entry is None:
        missing = f"  for event {step.missing_cause}, which is in none of these" if step.missing_cause else ""
        name = printable(step.name or "(name not recorded)")
        return Text.assemble(("command ", "dim"), (name, "bold"), printable(f"  {step.id}{missing}"))
    entry, event = step.entry, step.entry.event
    number = f"  [{logs.index(entry.log) + 1}]" if len(logs) > 1 else ""
    place = entry.place if event is None else printable(f"{event.stream}@{event.version}")
    time = as_utc(entry.happened)
    fields = f"  {as_pairs(entry.data)}" if data else ""
    return Text.assemble(
        ("event ", "dim"), (printable(step.name or ""), "bold"), f"  {place}  ", (time, "dim"), number, fields
    )


def _reactions(step: Step) -> Iterator[Any]:
    from rich.text import Text

    for one in step.reactions:
        what = "handled by" if one.outcome == "handled" else "given up by"
        yield Text.assemble((f"{what} ", "dim"), one.group, (f"  {as_utc(one.time)}", "dim"))
