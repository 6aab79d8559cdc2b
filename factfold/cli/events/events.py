"""`factfold events`: tail, show, replay."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

import eventstore
import projections
from eventstore.errors import DeclarationError, EventsNotFound
from eventstore.inspection.stream_states import event_at
from factfold import on_demand
from factfold.cli.completions import completes
from factfold.cli.definitions import load_definition
from factfold.cli.events.entry_display import entry_as_json, print_entries, print_entry
from factfold.cli.events.logs_to_read import (
    Categories,
    Correlation,
    KeyOptions,
    MaybeDatabase,
    MaybeTopic,
    ShowPersonal,
    Since,
    Streams,
    Types,
    Until,
    no_log,
    opened_log,
    selected,
)
from factfold.cli.events.shown_streams import masked_entries
from factfold.cli.events.store import Database, Json, Schema, existing_store
from factfold.cli.events.subscriptions import Target, load_subscription
from factfold.cli.keys import KeyStoreOption, KeysUrl, MasterKeysIfAny, named_keys
from factfold.cli.logs import log_to_stderr
from factfold.cli.shown_values import echo
from factfold.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from eventstore import SqlEventStore, Subscription
    from eventstore.backends.sql.replaying import ReplayPlan, ReplayReport
    from eventstore.inspection.entries import Entry
    from eventstore.inspection.selection import Selection

app = typer.Typer(help="Events: look at them, and deliver some again.", no_args_is_help=True)

_PLACE = re.compile(r"(?:(?P<topic>[A-Za-z0-9._-]+)\[)?(?P<partition>\d+)\]?@(?P<offset>\d+)")


@app.callback()
def events() -> None:
    """Events: look at them, and deliver some again."""
    log_to_stderr()


@app.command()
def tail(
    database: MaybeDatabase = None,
    topic: MaybeTopic = None,
    schema: Schema = None,
    streams: Streams = None,
    categories: Categories = None,
    types: Types = None,
    since: Since = None,
    until: Until = None,
    correlation: Correlation = None,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="How many of the last events.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until a signal.")] = False,
    show_personal: ShowPersonal = False,
    master_keys: MasterKeysIfAny = None,
    key_store: KeyStoreOption = None,
    keys_url: KeysUrl = None,
    as_json: Json = False,
) -> None:
    """Show the last events of a store, or the last records of a topic. --json prints one line of JSON each."""
    chosen = selected(streams=streams, categories=categories, types=types, since=since, until=until,
                      correlation=correlation)  # fmt: skip
    keys = KeyOptions(show_personal, master_keys, key_store, keys_url)
    stop = stop_on_signal() if follow else None
    with opened_log(database, schema, topic, keys) as log:
        entries = log.last(chosen, limit=last) if stop is None else log.follow(chosen, limit=last, stop=stop)
        print_entries(entries, as_lines_of_json=as_json)


@app.command()
def show(
    event: Annotated[
        str, typer.Argument(help="Its id, or its place: order-o1@3. With --topic partition and offset: 2@17.")
    ],
    database: MaybeDatabase = None,
    topic: MaybeTopic = None,
    schema: Schema = None,
    show_personal: ShowPersonal = False,
    master_keys: MasterKeysIfAny = None,
    key_store: KeyStoreOption = None,
    keys_url: KeysUrl = None,
    as_json: Json = False,
) -> None:
    """Show one event of a store, or one record of a topic, in full."""
    keys = KeyOptions(show_personal, master_keys, key_store, keys_url)
    entry = _in_topic(event, topic, keys) if topic is not None else _in_store(event, database, schema, keys)
    if as_json:
        echo(json.dumps(entry_as_json(entry)))
    else:
        print_entry(entry)


@app.command()
def replay(
    subscription: Target,
    database: Database,
    schema: Schema = None,
    streams: Streams = None,
    categories: Categories = None,
    types: Types = None,
    from_version: Annotated[int | None, typer.Option("--from", min=0, help="Not before this version.")] = None,
    to_version: Annotated[int | None, typer.Option("--to", min=0, help="Not after this version.")] = None,
    since: Since = None,
    until: Until = None,
    correlation: Correlation = None,
    everything: Annotated[bool, typer.Option("--all", help="Every event that the handler takes.")] = False,
    after: Annotated[
        str | None, typer.Option("--after", help="Go on after this position, which an interrupted replay printed.")
    ] = None,
    branches: Annotated[
        str | None,
        typer.Option(
            "--branches", help="The branches of a branch topic, as module:name.", autocompletion=completes("branches")
        ),
    ] = None,
    inbox_url: Annotated[
        str | None,
        typer.Option("--inbox-url", envvar="FACTFOLD_INBOX_URL",
                     help="SQLAlchemy URL of the handler's database. Default: the store's."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Deliver. Without it, show what would be delivered.")] = False,
    master_keys: MasterKeysIfAny = None,
    key_store: KeyStoreOption = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Deliver chosen events of a store again to one subscription, although its inbox knows them.

    Every effect of the handler takes place again. Without --yes nothing is called and nothing changes.
    """
    declared = load_subscription(subscription)
    chosen = selected(streams=streams, categories=categories, types=types, since=since, until=until,
                      correlation=correlation, from_version=from_version, to_version=to_version)  # fmt: skip
    _require_choice(chosen, everything=everything or after is not None)
    reached = None if after is None else on_demand.parse_position(after)
    with ExitStack() as opened:
        store = opened.enter_context(existing_store(database, schema, keys=named_keys(key_store, master_keys)))
        again = _replay(opened, store, declared, chosen, inbox_url, branches, after=reached)
        if yes:
            with _watched() as on_progress:
                report = again.run(on_progress=on_progress)
            _print_report(report, as_json=as_json)
        else:
            _tell_plan(again.plan(), declared, store, as_json=as_json)


@contextmanager
def _watched() -> Iterator[Callable[[ReplayReport], None]]:
    """On a terminal, say how far a replay is while it goes on."""
    from rich.console import Console

    with Console(stderr=True).status("handling events again") as status:
        yield lambda report: status.update(f"{report.handled:,} events handled again")


def _in_store(event: str, database: str | None, schema: str | None, keys: KeyOptions) -> Entry:
    if database is None:
        raise no_log()
    stream, _, version = event.rpartition("@")
    with existing_store(database, schema, keys=keys.of_store()) as store:
        log = on_demand.StoreLog(store)
        if stream and version.isdecimal():
            recorded = event_at(store, stream, version=int(version))
        else:
            recorded = store.find(_id(event, "order-o1@3")) or _none(event, log.name)
        return log.entry(recorded)


def _in_topic(event: str, topic: str, keys: KeyOptions) -> Entry:
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
    raise EventsNotFound(
        f"no event has the id {event} in {where}",
        remedy="check the id and the store or topic that you read. Events of deleted streams are not shown",
        place=where,
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
    branches = load_definition(
        spec, projections.Branches, what="definition of branches", example="shop.payments:payment_branches"
    )
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


def _tell_plan(plan: ReplayPlan, declared: Subscription[..., Any], store: SqlEventStore, *, as_json: bool) -> None:
    first = masked_entries(store, plan.first)
    if as_json:
        fields = {"delivered": False, "events": plan.events, "known": plan.known, "types": plan.types}
        echo(json.dumps(fields | {"first": [entry_as_json(one) for one in first]}))
        return
    echo(f"{plan.events:,} events for {declared.name}, group {declared.group}. Its inbox knows {plan.known:,}")
    for kind, count in plan.types.items():
        echo(f"  {kind}: {count:,}")
    print_entries(first, as_lines_of_json=False)
    echo("nothing was delivered: repeat the command with --yes")


def _print_report(report: ReplayReport, *, as_json: bool) -> None:
    reached = report.reached and report.reached.text
    if as_json:
        fields = {"delivered": True, "handled": report.handled, "overtaken": report.overtaken, "reached": reached}
        echo(json.dumps(fields))
    else:
        overtaken = f", {report.overtaken:,} were handled meanwhile" if report.overtaken else ""
        echo(f"{report.handled:,} events handled again{overtaken}")
