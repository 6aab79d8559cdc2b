"""`factfold dlq`: list, show, replay, discard, actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eventstore.deadletters import by_cause
from factfold.cli.events.store import Json
from factfold.cli.given_options import with_options
from factfold.cli.letters.dlq_homes import Definition, Home, opened_letters
from factfold.cli.letters.shown_letters import contents_as_json, edited_payload
from factfold.cli.logs import log_to_stderr
from factfold.cli.progress import shown_progress
from factfold.cli.shown_values import as_json as plain
from factfold.cli.shown_values import echo

if TYPE_CHECKING:
    from eventstore.deadletters import Letters
    from eventstore.deadletters.causes import Cause
    from eventstore.deadletters.letters import Letter, Settled

app = typer.Typer(help="Dead letters: records and events that were given up.", no_args_is_help=True)

Ids = Annotated[list[str] | None, typer.Option("--id", help="A letter's id, as list shows it. Give it several times.")]
All = Annotated[bool, typer.Option("--all", help="All open letters.")]
By = Annotated[str | None, typer.Option("--by", help="The name to record. Default: user and host.")]

_LEFT: Final = 3  # the exit code: some letters stay open
_SHOWN: Final = 5


class To(StrEnum):
    """Where letters are replayed to."""

    GROUP = "group"
    TOPIC = "topic"
    BRANCH = "branch"


@app.callback()
def dlq() -> None:
    """Dead letters: records and events that were given up."""
    log_to_stderr()


@app.command(name="list")
@with_options
def list_(
    home: Home,
    letters: Annotated[bool, typer.Option("--letters", help="Each letter instead of each cause.")] = False,
    as_json: Json = False,
) -> None:
    """Show the open letters, grouped by their cause."""
    with opened_letters(home) as opened:
        with shown_progress("reading") as tell:
            open_letters = list(opened.open(on_progress=tell))
        place = opened.place
    causes = by_cause(open_letters)
    if as_json:
        _print(open_letters if letters else causes)
        return
    echo(f"{place}: {len(open_letters):,} open, causes: {len(causes):,}")
    if not open_letters:
        echo("factfold dlq actions shows settled letters. If there are none, check the names of topic and group")
    for line in map(_letter_line, open_letters) if letters else map(_cause_lines, causes):
        echo(line)


@app.command()
@with_options
def show(
    home: Home,
    letter_id: Annotated[str, typer.Option("--id", help="The letter's id, as list shows it.")],
    as_json: Json = False,
) -> None:
    """Show a letter: cause, place, attempts, headers and decoded payload, personal values masked."""
    with opened_letters(home) as opened:
        contents = opened.show(letter_id)
    fields = contents_as_json(contents)
    if as_json:
        _print(fields)
        return
    for name, value in fields.items():
        if value not in (None, {}, ""):
            echo(f"{name}: {json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict) else value}")


@app.command()
@with_options
def replay(
    home: Home,
    ids: Ids = None,
    every: All = False,
    to: Annotated[
        To | None, typer.Option("--to", help="Default: the group, or the branch of each letter of branches.")
    ] = None,
    edit: Annotated[
        Path | None,
        typer.Option("--edit", help="JSON file with another payload for the one letter.", exists=True, dir_okay=False),
    ] = None,
    branches: Definition = None,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Send letters back: to their group alone, to their topic, or to the branches they belong to.

    Killed, it is run again: no letter is lost, and none is sent twice. Exit code 3 if some letters stay open.
    An event that was handled since its letter is handled again if the inbox has forgotten it (`remember`, 30 days).
    """
    chosen, payload = _chosen(ids, every=every), None if edit is None else _edit(edit)
    with opened_letters(home, branches) as opened:
        with shown_progress("replaying") as tell:
            done = opened.replay(chosen, to=None if to is None else to.value, edit=payload, by=by, on_progress=tell)
        _tell(opened, "replayed", done, as_json=as_json)


@app.command()
@with_options
def discard(
    home: Home,
    ids: Ids = None,
    every: All = False,
    why: Annotated[str | None, typer.Option("--why", help="The reason, for the record.")] = None,
    by: By = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Settle letters without handling them: their records stay, and are not listed. Exit code 3 if some stay open."""
    chosen = _chosen(ids, every=every)
    with opened_letters(home) as opened:
        if not yes:
            count = sum(1 for _ in opened.open()) if chosen is None else len(chosen)
            letters = "1 letter" if count == 1 else f"{count:,} letters"
            typer.confirm(f"Discard {letters} of {opened.place}", abort=True, err=True)
        with shown_progress("discarding") as tell:
            done = opened.discard(chosen, why=why, by=by, on_progress=tell)
        _tell(opened, "discarded", done, as_json=as_json)


@app.command()
@with_options
def actions(
    home: Home,
    as_json: Json = False,
) -> None:
    """Show what was done with letters, with name and time."""
    with opened_letters(home) as opened:
        actions = list(opened.actions())
    if as_json:
        _print(actions)
        return
    for one in actions:
        to = f" to the {one.to}" if one.to else ""
        edited, why = ", edited" if one.edited else "", f": {one.why}" if one.why else ""
        echo(f"{_moment(one.time)} {one.by}: {one.action} {one.letter}{to}{edited}, {one.result}{why}")


def _chosen(ids: list[str] | None, *, every: bool) -> list[str] | None:
    if every == bool(ids):
        raise typer.BadParameter("name letters by --id, or take --all")
    return None if every else ids


def _edit(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = ""
    return edited_payload(text, place=str(path))


def _tell(opened: Letters, what: str, done: Settled, *, as_json: bool) -> None:
    if as_json:
        _print({"place": opened.place, "settled": done.count, "left": dict(done.left)})
    else:
        echo(f"{opened.place}: {done.count:,} {what}, {len(done.left):,} of the chosen letters stay open")
        for letter_id, why in done.left.items():
            echo(f"  {letter_id}: {why}")
    if done.left:
        raise typer.Exit(_LEFT)


def _cause_lines(cause: Cause) -> str:
    ids = " ".join(cause.letters[:_SHOWN]) + (" …" if cause.count > _SHOWN else "")
    return (
        f"{cause.count:,} × {cause.error}: {cause.pattern}\n"
        f"    {_moment(cause.first)} to {_moment(cause.last)}, attempts: {cause.attempts:,}\n    {ids}"
    )


def _letter_line(letter: Letter) -> str:
    message = letter.message.partition("\n")[0]
    return f"{letter.id} {_moment(letter.time)} {letter.origin}: {letter.error}: {message}, attempts: {letter.attempts}"


def _moment(moment: datetime | None) -> str:
    return "?" if moment is None else moment.isoformat(timespec="seconds")


def _print(value: Mapping[str, Any] | Sequence[Any]) -> None:
    echo(json.dumps(plain(value), indent=2, ensure_ascii=False))
