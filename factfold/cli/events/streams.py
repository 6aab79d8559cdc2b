"""`factfold store archive`, `unarchive` and `delete`: the ends of single streams."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from eventstore import STREAM_EXISTS
from factfold.cli.events.store import Database, Json, Schema, app, existing_store
from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from eventstore.identifiers import ExpectedVersion

__all__ = ["app"]

Stream = Annotated[str, typer.Argument(help="The stream: its category, a dash, the id.")]
Version = Annotated[
    int | None,
    typer.Option(
        "--expected", min=0, help="Its last version as you know it. Default: the version at your confirmation."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command()
def archive(
    stream: Stream,
    database: Database,
    schema: Schema = None,
    expected: Version = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Close a finished stream: it can be read, and takes no events until it is unarchived."""
    with existing_store(database, schema) as store:
        head = store.head(stream)
        if head is not None:
            _ask(f"Archive {stream!r} at version {head}", yes=yes)
        store.archive_stream(stream, expected=_seen(head, expected))
        version = store.head(stream)
    fields = {"stream": stream, "archived": True, "version": version}
    echo(json.dumps(fields) if as_json else f"{stream}: archived at version {version}")


@app.command()
def unarchive(
    stream: Stream, database: Database, schema: Schema = None, yes: Yes = False, as_json: Json = False
) -> None:
    """Let an archived stream take events again."""
    with existing_store(database, schema) as store:
        was = store.is_archived(stream)
        if was:
            _ask(f"Let {stream!r} take events again", yes=yes)
        store.unarchive_stream(stream)
    fields = {"stream": stream, "archived": False, "changed": was}
    echo(json.dumps(fields) if as_json else f"{stream}: {'takes events again' if was else 'was not archived'}")


@app.command()
def delete(
    stream: Stream,
    database: Database,
    schema: Schema = None,
    expected: Version = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a stream for good, from store, topic and views. Its name cannot be used again."""
    with existing_store(database, schema) as store:
        head = store.head(stream)
        if head is not None:
            _ask(f"Delete {stream!r} and its {head + 1:,} events? It cannot be undone", yes=yes)
        count = store.delete_stream(stream, expected=_seen(head, expected))
    result = f"{count:,} events deleted" if count else "was deleted before"
    echo(json.dumps({"stream": stream, "deleted": count}) if as_json else f"{stream}: {result}")


def _ask(what: str, *, yes: bool) -> None:
    if not yes:
        typer.confirm(what, abort=True, err=True)


def _seen(head: int | None, expected: int | None) -> ExpectedVersion:
    """What is expected of the stream: what was said, else what was shown; the store refuses one without events."""
    if expected is not None:
        return expected
    return STREAM_EXISTS if head is None else head
