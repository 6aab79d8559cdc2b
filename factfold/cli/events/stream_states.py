"""`factfold streams`: show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventstore.inspection.stream_states import event_at, stream_state
from factfold import on_demand
from factfold.cli.definitions import load_aggregate
from factfold.cli.events.entry_display import entry_as_json, print_entries, state_as_json
from factfold.cli.events.store import Store, Stream
from factfold.cli.keys import ShownKeys
from factfold.cli.options import Commands, definition, option
from factfold.cli.show import Out, as_line, as_utc, echo

if TYPE_CHECKING:
    from eventstore import RecordedEvent, SqlEventStore
    from eventstore.inspection.stream_states import StreamState

app = Commands("Streams: their events and their states.")


@app.command()
def show(
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
