"""Options that name stores and topics to look at, and which of their events.

Events, records, states and traces as they look in a terminal and in JSON, for commands and for the console.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import eventstore
from eventstore.delivery.source import shown_payload
from eventstore.errors import DeclarationError
from factfold import on_demand
from factfold.cli.events.store import MaybeStore, existing_store
from factfold.cli.keys import TopicKeys
from factfold.cli.options import option, parse_duration
from factfold.cli.show import Out, as_json, as_line, as_pairs, as_utc, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from eventstore import RecordedEvent, SqlEventStore
    from eventstore.inspection.selection import Entry, Log
    from eventstore.inspection.store_log import StreamState
    from eventstore.inspection.tracing import Step, Trace

MaybeTopic = Annotated[str | None, option("--topic", "Read this topic, and no store.")]


@dataclass(frozen=True)
class Chosen:
    """Which events are meant, as options say it."""

    streams: Annotated[list[str] | None, option("--stream", "Only this stream. May be repeated.")] = None
    categories: Annotated[list[str] | None, option("--category", "Only this category. May be repeated.")] = None
    types: Annotated[list[str] | None, option("--type", "Only this event type. May be repeated.")] = None
    since: Annotated[
        str | None, option("--since", "Not before this: a time with its zone, or how long ago: 15m, 2h.")
    ] = None
    until: Annotated[str | None, option("--until", "Not after this: a time with its zone, or how long ago.")] = None
    correlation: Annotated[str | None, option("--correlation", "Only this correlation id.")] = None

    def selection(self, **versions: int | None) -> on_demand.Selection:
        """The selection of these events; the errors of `Selection`, DeclarationError for what is no time."""
        return on_demand.Selection(
            streams=tuple(self.streams or ()), categories=tuple(self.categories or ()), types=tuple(self.types or ()),
            since=None if self.since is None else parse_moment(self.since),
            until=None if self.until is None else parse_moment(self.until),
            correlation_id=self.correlation, **versions,
        )  # fmt: skip


@dataclass(frozen=True)
class LogPlace:
    """The one store or topic to look at."""

    store: MaybeStore
    topic: MaybeTopic = None

    @contextmanager
    def opened(self, keys: TopicKeys) -> Iterator[Log]:
        """Open it; DeclarationError without either."""
        databases = [self.store.database] if self.store.database is not None and self.topic is None else []
        topics = [] if self.topic is None else [self.topic]
        with opened_logs(databases, self.store.schema, topics, keys) as (_, logs):
            yield logs[0]


def parse_moment(text: str) -> datetime:
    """Read `2026-11-26T12:00:00Z`, or `15m` for as long ago; DeclarationError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - parse_duration(text)
        except (DeclarationError, OverflowError):
            raise DeclarationError(
                f"{text!r} is no time", remedy="write 2026-11-26T12:00:00Z, or how long ago: 15m, 2h, 3d"
            ) from None
    if moment.tzinfo is None:
        raise DeclarationError(
            f"{text!r} has no time zone", remedy=f"write it as {moment.isoformat()}Z, or with its zone"
        )
    return moment


@contextmanager
def opened_logs(
    databases: Sequence[str], schema: str | None, topics: Sequence[str], keys: TopicKeys
) -> Iterator[tuple[list[SqlEventStore], list[Log]]]:
    """Every store and topic that options name, and the stores by themselves; DeclarationError without any."""
    if not databases and not topics:
        raise no_log()
    with ExitStack() as opened:
        pairs = [_store_log(opened, database, schema, keys) for database in databases]
        yield [store for store, _ in pairs], [*(log for _, log in pairs), *(_topic(opened, t, keys) for t in topics)]


def no_log() -> DeclarationError:
    """Build the error for a command that was given nothing to read."""
    return DeclarationError(
        "neither a store nor a topic is named", remedy="say --store-url URL (FACTFOLD_STORE_URL), or --topic NAME"
    )


def _store_log(opened: ExitStack, database: str, schema: str | None, keys: TopicKeys) -> tuple[SqlEventStore, Log]:
    store = opened.enter_context(existing_store(database, schema, keys=keys.of_store))
    return store, on_demand.StoreLog(store)


def _topic(opened: ExitStack, topic: str, keys: TopicKeys) -> Log:
    held = opened.enter_context(keys.of_topics())
    return opened.enter_context(on_demand.TopicLog(topic, eventstore.Settings(), keys=held))


# The longest event, 1,000,000 bytes, as text on one line; rich measures a line before it prints it.
_UNCUT: Final = 8_000_000
_OF_EVENTS: Final = ("type", "stream", "version", "id", "schema_id", "schema_version", "metadata.correlation_id",
                     "metadata.causation_id", "metadata.traceparent")  # fmt: skip


def entry_as_json(entry: Entry) -> dict[str, Any]:
    """An event or a record as JSON has it; null where a record has no such thing."""
    event = entry.event
    return {
        "log": entry.log,
        "place": entry.place,
        "time": entry.happened.astimezone(UTC).isoformat(),
        "form": entry.form,
        **{path.rpartition(".")[2]: event and as_json(attrgetter(path)(event)) for path in _OF_EVENTS},
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
    return {"correlation_id": conversation.correlation_id, "steps": list(map(_step_as_json, conversation.steps))}


def _step_as_json(step: Step) -> dict[str, Any]:
    names = ("kind", "id", "name", "parent", "depth", "missing_cause", "reactions")
    fields = {name: as_json(getattr(step, name)) for name in names}
    return {**fields, "event": None if step.entry is None else entry_as_json(step.entry)}
