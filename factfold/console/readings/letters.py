"""Dead letters in their homes: topics of groups and branches, databases of handlers, what projections set aside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import projections
from eventstore.backends.sql.letters import letter_places
from eventstore.deadletters import by_cause, store_letters
from eventstore.errors import FactfoldError
from eventstore.topics import DEAD_LETTERS, dead_letter_topic_of, settled_topic
from factfold import on_demand
from factfold.cli.letters.dlq_homes import contents_as_json
from factfold.console.page import chosen
from factfold.console.parts import Problem
from factfold.console.readings.groups import SERVING
from factfold.console.sources import Clients, Reading

if TYPE_CHECKING:
    from eventstore.deadletters import Letters
    from eventstore.deadletters.causes import Cause
    from eventstore.deadletters.letters import Action, Letter
    from factfold.console.definitions import Definitions

LETTERS_READ: Final = 5_000
ACTIONS_SHOWN: Final = 20

Kind = Literal["topic", "branches", "inbox", "views"]


@dataclass(frozen=True, slots=True, order=True)
class Home:
    """Where letters are: in a group's or a router's topic, a handlers' database, or among views."""

    kind: Kind
    topic: str
    group: str = ""

    @property
    def key(self) -> str:
        """How addresses name it."""
        return ":".join((self.kind, self.topic, self.group))

    @property
    def letters_topic(self) -> str | None:
        """The topic with the letters; None if they are in a database."""
        if self.kind == "branches":
            return f"{self.topic}.{DEAD_LETTERS}"
        return dead_letter_topic_of(self.topic, self.group) if self.kind == "topic" else None

    @property
    def command(self) -> str:
        """The words behind `factfold dlq list` that name it; the home's address goes by the environment."""
        home = {"inbox": " --home inbox", "views": " --home views"}.get(self.kind, "")
        return " ".join(filter(None, (self.topic, self.group))) + home


@dataclass(frozen=True, slots=True)
class Homes:
    """The homes of letters; `unknown` are topics of dead letters that no definition here names."""

    homes: tuple[Home, ...]
    unknown: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def named(self, key: str) -> Home:
        """Return the home that an address names. Raises NotFound."""
        home = next((one for one in self.homes if one.key == key), None)
        return chosen(home, f"there are no dead letters in {key[:120]!r}")


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


@dataclass(frozen=True, slots=True)
class OpenCount:
    """How many open letters a home has, and the most frequent cause; `more` says that only so many were read."""

    home: Home
    letters: int
    more: bool
    cause: str


def read_open_counts(clients: Clients) -> tuple[OpenCount, ...]:
    """Return the homes with open letters."""
    pairs = ((home, read_letters(clients, home)) for home in read_homes(clients).homes)
    return tuple(OpenCount(home, len(one.letters), one.more, one.main_cause) for home, one in pairs if one.main_cause)


def read_homes(clients: Clients) -> Homes:
    """Return every home that is there, with letters or without; a source that does not answer is a problem of it."""
    places = clients.places
    looks = ((places.kafka, _topics), (places.store_url, _inboxes), (places.views_url, _set_aside))
    parts, problems = list[Homes](), list[Problem]()
    for look in (look for configured, look in looks if configured):
        try:
            parts.append(look(clients))
        except FactfoldError as error:
            problems.append(Problem.of(error))
    homes = sorted(home for one in parts for home in one.homes)
    return Homes(tuple(homes), tuple(name for one in parts for name in one.unknown), tuple(problems))


def _topics(clients: Clients) -> Homes:
    existing = set(clients.offsets.names())
    declared = dict.fromkeys(_declared(clients.definitions, existing))
    homes = tuple(home for home in declared if home.letters_topic in existing)
    letters = {name for name in existing if name.endswith(f".{DEAD_LETTERS}")}
    return Homes(homes, tuple(sorted(letters - {home.letters_topic for home in homes})))


def _declared(definitions: Definitions, existing: Collection[str]) -> Iterator[Home]:
    """The homes in topics that definitions would have."""
    for subscription in definitions.subscriptions.values():
        yield from (Home("topic", topic, subscription.group) for topic in subscription.chosen(existing))
    for group in definitions.groups.values():
        yield from (Home("topic", table.topic, group.name) for table in group.tables.values())
    yield from (Home("branches", branches.topic) for branches in definitions.branches.values())


def _inboxes(clients: Clients) -> Homes:
    places = letter_places(clients.store, engine=clients.database)
    return Homes(tuple(Home("inbox", topic, group) for topic, group in places))


def _set_aside(clients: Clients) -> Homes:
    groups = [state.run.group for state in clients.views.states(None, SERVING)]
    return Homes(
        tuple(Home("views", each, name) for name in groups for each in on_demand.set_aside_topics(clients.views, name))
    )


def known_home(clients: Clients, key: str) -> Home:
    """Return the home that an address names. Raises NotFound."""
    return read_homes(clients).named(key)


def opened_home(clients: Clients, home: Home) -> AbstractContextManager[Letters]:
    """Open the letters of a home over the clients that are open already. Raises LetterMissing."""
    if home.kind == "views":
        return projections.set_aside_letters(clients.views, home.topic, group=home.group)

    if home.kind == "inbox":
        return store_letters(clients.store, home.topic, group=home.group, engine=clients.database)
    if home.kind == "topic":
        return on_demand.group_letters(clients.settings, home.topic, group=home.group)

    declared = (one for one in clients.definitions.branches.values() if one.topic == home.topic)
    return projections.branch_letters(clients.settings, next(declared, home.topic))


def read_letters(clients: Clients, home: Home) -> OpenLetters:
    """Return the open letters of a home and what was done with others, the newest action first.

    A topic is read as a whole, and only if it or what was done with its letters has grown.
    """
    if home.letters_topic is None:
        return _read(clients, home)
    return clients.unless_same(home, _ends(clients, home.letters_topic), lambda: _read(clients, home))


def _ends(clients: Clients, topic: str) -> object:
    offsets = clients.offsets
    names = [topic, *offsets.existing([settled_topic(topic).name])]
    return offsets.end_offsets(names), offsets.beginning_offsets(names)


def _read(clients: Clients, home: Home) -> OpenLetters:
    with opened_home(clients, home) as opened:
        open_letters = list(islice(opened.open(), LETTERS_READ + 1))
        actions = list(opened.actions())[-ACTIONS_SHOWN:]
        letters = tuple(open_letters[:LETTERS_READ])
        causes = tuple(by_cause(letters))
        return OpenLetters(opened.place, letters, causes, tuple(reversed(actions)), len(open_letters) > LETTERS_READ)


def read_contents(clients: Clients, home: Home, letter: str) -> Mapping[str, Any]:
    """Return one letter as `factfold dlq show --json` prints it, personal values masked. Raises LetterMissing."""
    with opened_home(clients, home) as opened:
        return contents_as_json(opened.show(letter))


HOMES: Final = Reading(read_homes)
LETTERS: Final = Reading(read_letters)
CONTENTS: Final = Reading(read_contents)
OPEN_COUNTS: Final = Reading(read_open_counts, rest=15.0)
