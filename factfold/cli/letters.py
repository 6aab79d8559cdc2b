"""The home of dead letters that a command's options name, and what a letter holds as JSON has it.

`factfold dlq`: list, show, replay, discard, actions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

import eventstore
import projections
from eventstore.deadletters import by_cause
from eventstore.errors import InvalidEventData
from eventstore.fields.plain_json import dump_plain, load_plain
from factfold import on_demand
from factfold.cli.options import Commands, Yes, argument, chosen_by, confirm, definition, option, setting
from factfold.cli.running import reached_settings
from factfold.cli.show import Out, answer, progress
from factfold.cli.views.projections import opened_views
from factfold.cli.views.topics import load_branches
from projections.letter_homes import HomeKind

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore import Settings, SqlEventStore
    from eventstore.deadletters import Letters
    from eventstore.deadletters.letters import Action, Cause, Contents, Letter, Settled
    from projections.stores.sql import TableStore

Definition = Annotated[
    str | None,
    definition("The definition of the branches, to replay letters into them.", "branches", name="--branches"),
]


@dataclass(frozen=True)
class Home:
    """What the options say of the home."""

    topic: Annotated[str, argument("The topic whose records were given up.")]
    group: Annotated[
        str | None, argument("The group that gave them up: a subscription's or a projection's. None for branches.")
    ] = None
    home: Annotated[
        HomeKind | None,
        option(
            "--home",
            "Where the letters are. Default: where --inbox-url or --views-url says, else in a topic.",
            callback=chosen_by({"database": HomeKind.INBOX, "views_url": HomeKind.VIEWS}, otherwise=HomeKind.TOPIC),
        ),
    ] = None
    database: Annotated[
        str | None,
        setting("--inbox-url", "SQLAlchemy URL of the handler's database, for a subscription that reads a store."),
    ] = None
    store_url: Annotated[
        str | None, setting("--store-url", "SQLAlchemy URL of that store, if it is in another database.")
    ] = None
    schema: Annotated[str | None, setting("--store-schema", "That store's database schema (PostgreSQL).")] = None
    views_url: Annotated[
        str | None, setting("--views-url", "SQLAlchemy URL of a projection's views, for the records it has set aside.")
    ] = None


@contextmanager
def opened_letters(home: Home, branches: str | None = None) -> Iterator[Letters]:
    """Open the letters in their home. Raises BadParameter if the options name none."""
    if home.group is None and home.home != HomeKind.TOPIC:
        raise typer.BadParameter("name the group behind the topic")
    with ExitStack() as stack:
        at, engine = _place(home, stack)
        topic = home.topic if branches is None or home.group is not None else load_branches(branches)
        yield stack.enter_context(projections.letters(at, topic, group=home.group, engine=engine))


def _place(home: Home, stack: ExitStack) -> tuple[Settings | SqlEventStore | TableStore, Engine | None]:
    """Open what has the letters, and the database of the handler that gave them up."""
    if home.home == HomeKind.VIEWS:
        return stack.enter_context(opened_views(_url(home.views_url, "--views-url"))), None
    if home.home == HomeKind.INBOX:
        engine = stack.enter_context(on_demand.opened_engine(_url(home.database, "--inbox-url")))
        store = eventstore.SqlEventStore(home.store_url or engine, schema=home.schema)
        return stack.enter_context(store), engine
    return reached_settings(without_kafka="letters are in the handler's database: TOPIC GROUP --inbox-url URL"), None


def _url(url: str | None, option: str) -> str:
    if url is None:
        raise typer.BadParameter(f"give {option}, where the letters are")
    return url


@dataclass(frozen=True, slots=True)
class OpenLetters:
    """The open letters of a home, grouped by their cause; `more` says that there are more than are read."""

    place: str
    letters: tuple[Letter, ...]
    causes: tuple[Cause, ...]
    actions: tuple[Action, ...]
    more: bool

    @property
    def main_cause(self) -> str | None:
        """The most frequent cause in one line, None if no letter is open."""
        return f"{self.causes[0].error}: {self.causes[0].pattern}" if self.causes else None


def open_letters(opened: Letters, *, most: int | None = None, actions: int = 0, **watched: Any) -> OpenLetters:
    """Read the open letters of a home and what was done with others, the newest action first."""
    found = list(islice(opened.open(**watched), None if most is None else most + 1))
    letters = tuple(found[:most])
    done = tuple(opened.actions())[-actions:] if actions else ()
    return OpenLetters(opened.place, letters, tuple(by_cause(letters)), done[::-1], len(found) > len(letters))


def contents_as_json(contents: Contents) -> dict[str, Any]:
    """A letter and what its record holds; the payload is what an edit begins with."""
    payload = None if contents.payload is None else json.loads(dump_plain(contents.payload))
    others = {name: value for name, value in asdict(contents).items() if name not in ("letter", "payload")}
    return {**asdict(contents.letter), "payload": payload, **others}


def edited_payload(text: str, *, place: str) -> Mapping[str, Any]:
    """Read a payload that was edited as text. Raises InvalidEventData."""
    try:
        payload = load_plain(text)
    except InvalidEventData:
        payload = None
    if isinstance(payload, Mapping):
        return payload
    raise InvalidEventData(
        f"{place} holds no payload in JSON",
        remedy="edit what factfold dlq show --json has under payload",
        place=place,
    )


app = Commands("Dead letters: records and events that were given up.")

Ids = Annotated[list[str] | None, option("--id", "A letter's id, as list shows it. Give it several times.")]
All = Annotated[bool, option("--all", "All open letters.")]
By = Annotated[str | None, option("--by", "The name to record. Default: user and host.")]

_SHOWN: Final = 5


To = Literal["group", "topic", "branch"]


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
            done = opened.replay(chosen, to=to, edit=payload, by=by, on_progress=tell)
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
