"""Events and records as they look in a terminal and in JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from factfold.cli.shown_values import as_json, as_line, as_pairs, as_utc, echo, printable

# The longest event, 1,000,000 bytes, as text on one line; rich measures a line before it prints it.
_UNCUT: Final = 8_000_000

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from eventstore.inspection.entries import Entry


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


def print_entries(entries: Iterable[Entry], *, as_lines_of_json: bool) -> None:
    """Print one line an entry, as soon as it is there."""
    console = None if as_lines_of_json else console_of_stdout()
    for entry in entries:
        if console is None:
            echo(json.dumps(entry_as_json(entry)))
        else:
            console.print(_line(entry), no_wrap=True, overflow="ellipsis")
        sys.stdout.flush()


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
