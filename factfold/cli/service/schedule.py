"""`factfold schedule`: list commands that are sent later, retry and cancel those scheduled without a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from factfold import on_demand
from factfold.cli.events.store import Database, Json, Schema, existing_store
from factfold.cli.logs import log_to_stderr
from factfold.cli.shown_values import as_json as as_json_values
from factfold.cli.shown_values import echo, printable

if TYPE_CHECKING:
    from eventstore.backends.sql.process_rows import Scheduled

app = typer.Typer(help="Commands that are sent later: list, retry, cancel.", no_args_is_help=True)

CommandId = Annotated[UUID, typer.Argument(help="The command's id, as `list` shows it.", metavar="ID")]


@app.callback()
def schedule() -> None:
    """Commands that are sent later: list, retry, cancel."""
    log_to_stderr()


@app.command(name="list")
def list_(
    database: Database,
    schema: Schema = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only commands that failed or were set aside.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 1000,
    as_json: Json = False,
) -> None:
    """List scheduled commands and those of processes, set aside first. Exit code 3 if --failed finds any."""
    with _schedule(database, schema) as opened:
        commands = opened.pending(failed=failed, processes=True, limit=limit)
    if as_json:
        echo(json.dumps(as_json_values(commands)))
    else:
        for one in commands:
            _tell(one)
        echo(f"{len(commands):,} {'command' if len(commands) == 1 else 'commands'}")
    if failed and commands:
        raise typer.Exit(3)


@app.command()
def retry(command_id: CommandId, database: Database, schema: Schema = None, as_json: Json = False) -> None:
    """Send a command that failed or was set aside at once. Exit code 1 if there is none of this id."""
    with _schedule(database, schema) as opened:
        _conclude(opened.retry(command_id), f"{command_id} is due now", as_json=as_json)


@app.command()
def cancel(command_id: CommandId, database: Database, schema: Schema = None, as_json: Json = False) -> None:
    """Delete a command that is still to be sent. Exit code 1 if there is none of this id."""
    with _schedule(database, schema) as opened:
        _conclude(opened.cancel(command_id), f"{command_id} is cancelled", as_json=as_json)


@contextmanager
def _schedule(database: str, schema: str | None) -> Iterator[on_demand.Schedule]:
    with existing_store(database, schema) as store:
        yield on_demand.Schedule(store)


def _tell(one: Scheduled) -> None:
    when = "set aside" if one.due is None else f"due {one.due:%Y-%m-%d %H:%M:%S} UTC"
    sender = "" if one.key is None else printable(f", sent by {one.key[0]} {one.key[1]}")
    echo(f"{one.id}  {when}  {one.name} for {printable(one.stream)} {printable(one.arguments)}{sender}")
    if one.error:
        echo(f"  failed, attempts: {one.attempts}: {printable(one.error)}")


def _conclude(done: bool, said: str, *, as_json: bool) -> None:
    if as_json:
        echo(json.dumps({"done": done}))
    elif done:
        echo(said)
    else:
        echo("there is no such command: it was sent, or cancelled before, or did not fail", err=True)
        echo("  remedy: list them. What a process sent: factfold processes retry or cancel", err=True)
    if not done:
        raise typer.Exit(1)
