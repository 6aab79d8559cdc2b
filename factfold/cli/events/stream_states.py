"""`factfold streams`: show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventstore.inspection.stream_states import event_at, stream_state
from factfold import on_demand
from factfold.cli.completions import completes
from factfold.cli.definitions import load_aggregate
from factfold.cli.events.entry_display import entry_as_json, print_entries
from factfold.cli.events.logs_to_read import KeyOptions, ShowPersonal
from factfold.cli.events.shown_streams import state_as_json
from factfold.cli.events.store import Database, Json, Schema, existing_store
from factfold.cli.keys import KeyStoreOption, MasterKeysIfAny
from factfold.cli.logs import log_to_stderr
from factfold.cli.shown_values import as_line, as_utc, echo

if TYPE_CHECKING:
    from eventstore import RecordedEvent, SqlEventStore
    from eventstore.inspection.stream_states import StreamState

app = typer.Typer(help="Streams: their events and their states.", no_args_is_help=True)


@app.callback()
def streams() -> None:
    """Streams: their events and their states."""
    log_to_stderr()


@app.command()
def show(
    stream: Annotated[str, typer.Argument(help="The stream: its category, a dash, the id.")],
    database: Database,
    aggregate: Annotated[
        str | None,
        typer.Argument(
            help="Its aggregate, for the state: module:name.",
            metavar="MODULE:NAME",
            autocompletion=completes("aggregate"),
        ),
    ] = None,
    at: Annotated[int | None, typer.Option("--at", min=0, help="The version to look at. Default: the last.")] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="How many events up to that version.")] = 20,
    schema: Schema = None,
    show_personal: ShowPersonal = False,
    master_keys: MasterKeysIfAny = None,
    key_store: KeyStoreOption = None,
    as_json: Json = False,
) -> None:
    """Show a stream's events up to a version, and with its aggregate its state there and what the event changed."""
    kind = None if aggregate is None else load_aggregate(aggregate)
    keys = KeyOptions(show_personal, master_keys, key_store)
    with existing_store(database, schema, keys=keys.of_store()) as store:
        event = event_at(store, stream, version=at)
        state = None if kind is None else stream_state(store, kind, stream, version=event.version)
        described = _described(store, event, last=last)
    if as_json:
        events = {"events": [entry_as_json(entry) for entry in described["events"]]}
        echo(json.dumps(described | events | state_as_json(state)))
        return
    closed = ", archived" if described["archived"] else ""
    echo(f"{stream} at version {event.version} of {described['head']}{closed}")
    print_entries(described["events"], as_lines_of_json=False)
    if state is not None:
        _tell_state(state)


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


def _tell_state(state: StreamState) -> None:
    echo(f"state at {as_utc(state.event.time)}")
    changes = state.changes
    for name, value in state.after.items():
        before = f"   (was {as_line(changes[name][0])})" if name in changes else ""
        echo(f"  {name} = {as_line(value)}{before}")
