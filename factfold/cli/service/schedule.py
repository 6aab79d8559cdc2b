"""`factfold schedule`: list commands that are sent later, retry and cancel those scheduled without a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from factfold import on_demand
from factfold.cli.events.store import Store
from factfold.cli.options import Commands, argument, option
from factfold.cli.show import Out, answer, echo, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventstore.backends.sql.process_rows import Scheduled

app = Commands("Commands that are sent later: list, retry, cancel.")

CommandId = Annotated[UUID, argument("The command's id, as `list` shows it.", "ID")]


@app.command("list")
def list_(
    store: Store,
    out: Out,
    failed: Annotated[bool, option("--failed", "Only commands that failed or were set aside.")] = False,
    limit: Annotated[int, option("--limit", "How many at most.", min=1)] = 1000,
) -> None:
    """List scheduled commands and those of processes, set aside first. Exit code 3 if --failed finds any."""
    with store.opened() as opened:
        commands = on_demand.Schedule(opened).pending(failed=failed, processes=True, limit=limit)
    out.show(commands, _lines(commands))
    answer(not (failed and commands))


@app.command()
def retry(command_id: CommandId, store: Store, out: Out) -> None:
    """Send a command that failed or was set aside at once. Exit code 1 if there is none of this id."""
    with store.opened() as opened:
        _conclude(on_demand.Schedule(opened).retry(command_id), f"{command_id} is due now", out)


@app.command()
def cancel(command_id: CommandId, store: Store, out: Out) -> None:
    """Delete a command that is still to be sent. Exit code 1 if there is none of this id."""
    with store.opened() as opened:
        _conclude(on_demand.Schedule(opened).cancel(command_id), f"{command_id} is cancelled", out)


def _lines(commands: Sequence[Scheduled]) -> Iterator[str]:
    for one in commands:
        when = "set aside" if one.due is None else f"due {one.due:%Y-%m-%d %H:%M:%S} UTC"
        sender = "" if one.key is None else printable(f", sent by {one.key[0]} {one.key[1]}")
        yield f"{one.id}  {when}  {one.name} for {printable(one.stream)} {printable(one.arguments)}{sender}"
        if one.error:
            yield f"  failed, attempts: {one.attempts}: {printable(one.error)}"
    yield f"{len(commands):,} {'command' if len(commands) == 1 else 'commands'}"


def _conclude(done: bool, said: str, out: Out) -> None:
    if out.as_json or done:
        out.show({"done": done}, said)
    else:
        echo("there is no such command: it was sent, or cancelled before, or did not fail", err=True)
        echo("  remedy: list them. What a process sent: factfold processes retry or cancel", err=True)
    if not done:
        raise typer.Exit(1)
