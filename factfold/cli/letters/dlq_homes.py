"""The home of dead letters that a command's options name, and what a letter holds as JSON has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eventstore
import projections
from eventstore.deadletters import by_cause
from eventstore.errors import InvalidEventData
from eventstore.fields.plain_json import dump_plain, load_plain
from factfold import on_demand
from factfold.cli.options import argument, chosen_by, definition, option, setting
from factfold.cli.running import reached_settings
from factfold.cli.views.branches import load_branches
from factfold.cli.views.opened_views import opened_views

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from eventstore import Settings, SqlEventStore
    from eventstore.deadletters import Letters
    from eventstore.deadletters.causes import Cause
    from eventstore.deadletters.letters import Action, Contents, Letter
    from projections.stores.sql import TableStore

Definition = Annotated[
    str | None,
    definition("The definition of the branches, to replay letters into them.", "branches", name="--branches"),
]


class HomeKind(StrEnum):
    """Where dead letters are."""

    TOPIC = "topic"
    INBOX = "inbox"
    VIEWS = "views"


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
    if home.group is None and home.home is not HomeKind.TOPIC:
        raise typer.BadParameter("name the group behind the topic")
    with ExitStack() as stack:
        at, engine = _place(home, stack)
        topic = home.topic if branches is None or home.group is not None else load_branches(branches)
        yield stack.enter_context(projections.letters(at, topic, group=home.group, engine=engine))


def _place(home: Home, stack: ExitStack) -> tuple[Settings | SqlEventStore | TableStore, Engine | None]:
    """Open what has the letters, and the database of the handler that gave them up."""
    if home.home is HomeKind.VIEWS:
        return stack.enter_context(opened_views(_url(home.views_url, "--views-url"))), None
    if home.home is HomeKind.INBOX:
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
