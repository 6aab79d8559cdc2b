"""Events, records, states and traces as they look in a terminal and in JSON, for commands and for the console."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from eventstore.delivery.masking import shown_payload
from factfold import on_demand
from factfold.cli.show import Out, as_json, as_line, as_pairs, as_utc, printable

# The longest event, 1,000,000 bytes, as text on one line; rich measures a line before it prints it.
_UNCUT: Final = 8_000_000

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from eventstore import RecordedEvent, SqlEventStore
    from eventstore.inspection.entries import Entry
    from eventstore.inspection.stream_states import StreamState
    from eventstore.inspection.tracing import Step, Trace


def entry_as_json(entry: Entry) -> dict[str, Any]:
    """An event or a record as JSON has it; null where a record has no such thing."""
    event = entry.event
    return {
        "log": entry.log,
        "place": entry.place,
        "time": entry.happened.astimezone(UTC).isoformat(),
        "form": entry.form,
        "type": event and event.type,
        "stream": event and event.stream,
        "version": event and event.version,
        "id": event and str(event.id),
        "schema_id": event and event.schema_id,
        "schema_version": event and event.schema_version,
        "correlation_id": event and event.metadata.correlation_id,
        "causation_id": event and event.metadata.causation_id,
        "traceparent": event and event.metadata.traceparent,
        "position": event and event.position.text,
        "key": entry.key,
        "headers": dict(entry.headers),
        "data": as_json(entry.data),
        "problem": entry.problem,
    }


def print_entries(entries: Iterable[Entry], out: Out) -> None:
    """Print one line an entry, as soon as it is there."""
    console = console_of_stdout()
    for entry in entries:
        if out.as_json:
            out.show(entry_as_json(entry), "")
        else:
            console.print(_line(entry), no_wrap=True, overflow="ellipsis")
            console.file.flush()


def print_entry(entry: Entry) -> None:
    """Print an entry whole, one line a fact."""
    console = console_of_stdout()
    for name, value in _facts(entry):
        console.print(f"  {name:<14} {value}", soft_wrap=True, markup=False)
    fields = entry.data if isinstance(entry.data, Mapping) else {entry.form: entry.data}
    console.print("data", style="bold")
    for name, value in fields.items():
        console.print(f"  {printable(str(name))} = {as_line(value)}", soft_wrap=True, markup=False)
    if entry.headers:
        console.print("headers", style="bold")
    for name, value in entry.headers.items():
        console.print(f"  {printable(name)} = {printable(value)}", soft_wrap=True, markup=False)


def _facts(entry: Entry) -> Iterator[tuple[str, str]]:
    fields = entry_as_json(entry) | {"time": as_utc(entry.happened)}
    names = ("type", "place", "log", "time", "id", "schema_id", "schema_version", "correlation_id", "causation_id",
              "traceparent", "position", "key", "problem")  # fmt: skip
    for name in names:
        if fields[name] is not None:
            yield (
                name.removesuffix("_id") if name.endswith("tion_id") else name.replace("_", " "),
                printable(str(fields[name])),
            )


def _line(entry: Entry) -> Text:
    from rich.text import Text

    event = entry.event
    parts: list[Any] = [(as_utc(entry.happened), "dim"), "  ", entry.place, "  "]
    if event is not None:
        parts += [(printable(event.type), "bold"), "  "]
        if entry.headers:  # of a topic, where the place does not say which stream
            parts += [printable(f"{event.stream}@{event.version}"), "  "]
        parts.append(as_pairs(entry.data))
    else:
        key = "" if entry.key is None else f"key={printable(entry.key)}  "
        parts += [(entry.form, "bold"), "  ", key, "" if entry.form == "deleted" else as_line(entry.data)]
    if entry.problem is not None:
        parts.append((f"  {printable(entry.problem)}", "red"))
    return Text.assemble(*parts)


def console_of_stdout() -> Console:
    """A console that cuts lines at the width of a terminal, and none that goes to a file or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_UNCUT)


def masked_entries(store: SqlEventStore, events: Iterable[RecordedEvent]) -> list[Entry]:
    """Return events of a store as entries, personal values masked, whether they are sealed or open."""
    log = on_demand.StoreLog(store)
    shown = (replace(one, data=shown_payload(store.schema(one.schema_id), one.data)) for one in events)
    return [log.entry(one) for one in shown]


def state_as_json(state: StreamState | None) -> dict[str, Any]:
    """A state at a version, and the values that its event changed."""
    if state is None:
        return {"state": None, "changes": None}
    changes = {name: {"before": as_json(old), "after": as_json(new)} for name, (old, new) in state.changes.items()}
    return {"state": as_json(dict(state.after)), "changes": changes}


def trace_as_json(conversation: Trace) -> dict[str, Any]:
    """A conversation, each step behind its cause."""
    return {
        "correlation_id": conversation.correlation_id,
        "steps": [_step_as_json(step) for step in conversation.steps],
    }


def _step_as_json(step: Step) -> dict[str, Any]:
    reactions = [
        {"group": one.group, "topic": one.topic, "outcome": one.outcome, "time": one.time.isoformat()}
        for one in step.reactions
    ]
    return {
        "kind": step.kind,
        "id": step.id,
        "name": step.name,
        "parent": step.parent,
        "depth": step.depth,
        "missing_cause": step.missing_cause,
        "reactions": reactions,
        "event": None if step.entry is None else entry_as_json(step.entry),
    }
