"""`factfold dlq`: list, show, replay, discard, actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from factfold.cli.letters.dlq_homes import (
    Definition,
    Home,
    contents_as_json,
    edited_payload,
    open_letters,
    opened_letters,
)
from factfold.cli.options import Commands, Yes, confirm, option
from factfold.cli.show import Out, answer, progress

if TYPE_CHECKING:
    from eventstore.deadletters import Letters
    from eventstore.deadletters.causes import Cause
    from eventstore.deadletters.letters import Action, Letter, Settled

app = Commands("Dead letters: records and events that were given up.")

Ids = Annotated[list[str] | None, option("--id", "A letter's id, as list shows it. Give it several times.")]
All = Annotated[bool, option("--all", "All open letters.")]
By = Annotated[str | None, option("--by", "The name to record. Default: user and host.")]

_SHOWN: Final = 5


class To(StrEnum):
    """Where letters are replayed to."""

    GROUP = "group"
    TOPIC = "topic"
    BRANCH = "branch"


@app.command("list")
def list_(
    home: Home,
    out: Out,
    letters: Annotated[bool, option("--letters", "Each letter instead of each cause.")] = False,
) -> None:
    """Show the open letters, grouped by their cause."""
    with opened_letters(home) as opened, progress("reading") as tell:
        found = open_letters(opened, on_progress=tell)
    lines = map(_letter_line, found.letters) if letters else map(_cause_lines, found.causes)
    head = f"{found.place}: {len(found.letters):,} open, causes: {len(found.causes):,}"
    settled = "factfold dlq actions shows settled letters. If there are none, check the names of topic and group"
    said = [head, *(lines if found.letters else [settled])]
    out.show(found.letters if letters else found.causes, said, indent=2)


@app.command()
def show(home: Home, letter_id: Annotated[str, option("--id", "The letter's id, as list shows it.")], out: Out) -> None:
    """Show a letter: cause, place, attempts, headers and decoded payload, personal values masked."""
    with opened_letters(home) as opened:
        fields = contents_as_json(opened.show(letter_id))
    given = {name: value for name, value in fields.items() if value not in (None, {}, "")}
    out.show(fields, (f"{name}: {_shown(value)}" for name, value in given.items()), indent=2)


def _shown(value: Any) -> Any:
    return json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict) else value


@app.command()
def replay(
    home: Home,
    out: Out,
    ids: Ids = None,
    every: All = False,
    to: Annotated[To | None, option("--to", "Default: the group, or the branch of each letter of branches.")] = None,
    edit: Annotated[
        Path | None, option("--edit", "JSON file with another payload for the one letter.", exists=True, dir_okay=False)
    ] = None,
    branches: Definition = None,
    by: By = None,
) -> None:
    """Send letters back: to their group alone, to their topic, or to the branches they belong to.

    Killed, it is run again: no letter is lost, and none is sent twice. Exit code 3 if some letters stay open.
    An event that was handled since its letter is handled again if the inbox has forgotten it (`remember`, 30 days).
    """
    chosen, payload = _chosen(ids, every=every), None if edit is None else _edit(edit)
    with opened_letters(home, branches) as opened:
        with progress("replaying") as tell:
            done = opened.replay(chosen, to=None if to is None else to.value, edit=payload, by=by, on_progress=tell)
        _tell(opened, "replayed", done, out)


@app.command()
def discard(
    home: Home,
    out: Out,
    ids: Ids = None,
    every: All = False,
    why: Annotated[str | None, option("--why", "The reason, for the record.")] = None,
    by: By = None,
    yes: Yes = False,
) -> None:
    """Settle letters without handling them: their records stay, and are not listed. Exit code 3 if some stay open."""
    chosen = _chosen(ids, every=every)
    with opened_letters(home) as opened:
        if not yes:
            count = sum(1 for _ in opened.open()) if chosen is None else len(chosen)
            letters = "1 letter" if count == 1 else f"{count:,} letters"
            confirm(f"Discard {letters} of {opened.place}", yes=yes)
        with progress("discarding") as tell:
            done = opened.discard(chosen, why=why, by=by, on_progress=tell)
        _tell(opened, "discarded", done, out)


@app.command()
def actions(home: Home, out: Out) -> None:
    """Show what was done with letters, with name and time."""
    with opened_letters(home) as opened:
        done = list(opened.actions())
    out.show(done, map(_action_line, done), indent=2)


def _action_line(one: Action) -> str:
    to = f" to the {one.to}" if one.to else ""
    edited, why = ", edited" if one.edited else "", f": {one.why}" if one.why else ""
    return f"{_moment(one.time)} {one.by}: {one.action} {one.letter}{to}{edited}, {one.result}{why}"


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


def _tell(opened: Letters, what: str, done: Settled, out: Out) -> None:
    said = f"{opened.place}: {done.count:,} {what}, {len(done.left):,} of the chosen letters stay open"
    left = (f"  {letter_id}: {why}" for letter_id, why in done.left.items())
    out.show({"place": opened.place, "settled": done.count, "left": done.left}, [said, *left], indent=2)
    answer(not done.left)


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
