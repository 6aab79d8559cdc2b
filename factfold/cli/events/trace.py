"""`factfold trace`: a conversation as a tree of commands, events and reactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

from factfold import on_demand
from factfold.cli.events.entry_display import console_of_stdout, trace_as_json
from factfold.cli.events.logs_to_read import opened_logs
from factfold.cli.events.store import Schema
from factfold.cli.keys import TopicKeys
from factfold.cli.options import argument, option, setting
from factfold.cli.show import Out, as_pairs, as_utc, echo, printable

if TYPE_CHECKING:
    from rich.tree import Tree

    from eventstore.inspection.tracing import Step, Trace


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
