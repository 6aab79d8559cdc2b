"""Dead letters: by home and cause, one with its payload; replayed, edited and discarded after a look at which.

Homes are topics of groups and branches, databases of handlers, and what projections set aside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import projections
from eventstore.backends.sql.letters import letter_places
from eventstore.deadletters.letters import operator
from eventstore.errors import FactfoldError, InvalidArgument
from eventstore.fields.plain_json import dump_plain
from eventstore.topics import DEAD_LETTERS, dead_letter_topic_of, settled_topic
from factfold import on_demand
from factfold.cli.letters import OpenLetters, contents_as_json, edited_payload, open_letters
from factfold.console.page import Action, Outcome, Page, Query, chosen, required, whole_number
from factfold.console.parts import Part, Problem
from factfold.console.sources import Clients, Look, Reading, Sources
from projections.letter_homes import HomeKind

if TYPE_CHECKING:
    from eventstore.deadletters import Letters
    from eventstore.deadletters.letters import Cause, Letter, Settled
    from factfold.discovery import Discovery

LETTERS_READ: Final = 5_000
ACTIONS_SHOWN: Final = 20

_WAITS: Final = (HomeKind.INBOX, "replayed")


@dataclass(frozen=True, slots=True, order=True)
class Home:
    """Where letters are: in a group's or a router's topic, a handlers' database, or among views."""

    kind: HomeKind
    topic: str
    group: str = ""

    @property
    def key(self) -> str:
        """How addresses name it."""
        return ":".join((self.kind, self.topic, self.group))

    @property
    def letters_topic(self) -> str | None:
        """The topic with the letters; None if they are in a database."""
        return dead_letter_topic_of(self.topic, self.group) if self.kind is HomeKind.TOPIC else None

    @property
    def command(self) -> str:
        """The words behind `factfold dlq list` that name it; the home's address goes by the environment."""
        home = "" if self.kind is HomeKind.TOPIC else f" --home {self.kind}"
        return " ".join(filter(None, (self.topic, self.group))) + home


@dataclass(frozen=True, slots=True)
class Homes:
    """The homes of letters; `unknown` are topics of dead letters that no definition here names."""

    homes: tuple[Home, ...]
    unknown: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def named(self, key: str) -> Home:
        """Return the home that an address names. Raises NotFound."""
        return chosen(self.homes, key, "there are no dead letters in", by=lambda one: one.key)


def read_open_counts(clients: Clients) -> tuple[HomeLine, ...]:
    """Return the homes with open letters."""
    lines = (_line(home, Part(read_letters(clients, home))) for home in read_homes(clients).homes)
    return tuple(line for line in lines if line.cause)


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


def _declared(definitions: Discovery, existing: Collection[str]) -> Iterator[Home]:
    """The homes in topics that definitions would have."""
    for subscription in definitions.subscriptions.values():
        yield from (Home(HomeKind.TOPIC, topic, subscription.group) for topic in subscription.chosen(existing))
    for group in definitions.groups.values():
        yield from (Home(HomeKind.TOPIC, table.topic, group.name) for table in group.tables.values())
    yield from (Home(HomeKind.TOPIC, branches.topic) for branches in definitions.branches.values())


def _inboxes(clients: Clients) -> Homes:
    places = letter_places(clients.store, engine=clients.database)
    return Homes(tuple(Home(HomeKind.INBOX, topic, group) for topic, group in places))


def _set_aside(clients: Clients) -> Homes:
    places = on_demand.set_aside_places(clients.views)
    return Homes(tuple(Home(HomeKind.VIEWS, topic, group) for topic, group in places))


def opened_home(clients: Clients, home: Home) -> AbstractContextManager[Letters]:
    """Open the letters of a home over the clients that are open already. Raises NotFound."""
    at, branches = getattr(clients, home.kind.source), {one.topic: one for one in clients.definitions.branches.values()}
    topic = home.topic if home.group else branches.get(home.topic, home.topic)
    return projections.letters(at, topic, group=home.group or None, engine=clients.database)


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
        return open_letters(opened, most=LETTERS_READ, actions=ACTIONS_SHOWN)


def read_contents(clients: Clients, home: Home, letter: str) -> Mapping[str, Any]:
    """Return one letter as `factfold dlq show --json` prints it, personal values masked. Raises NotFound."""
    with opened_home(clients, home) as opened:
        return contents_as_json(opened.show(letter))


HOMES: Final = Reading(read_homes)
LETTERS: Final = Reading(read_letters)
CONTENTS: Final = Reading(read_contents)
OPEN_COUNTS: Final = Reading(read_open_counts, rest=15.0)


SHOWN: Final = 100

Doing = Literal["replay", "discard"]


@dataclass(frozen=True, slots=True)
class HomeLine:
    """A home with how many letters are open, and their most frequent cause."""

    home: Home
    key: str
    open: int | None
    more: bool
    cause: str | None
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class CauseLine:
    """Letters of one cause, with the key by which an address names it."""

    key: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would be done with: the letters by their ids, and those that it would leave open."""

    doing: Doing
    ids: tuple[str, ...]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Detail:
    """One home: its causes, the letters that were chosen, one letter, and what would be done.

    `next` is the number of the letter that the next page begins with.
    """

    home: Home
    key: str
    command: str
    open_letters: Part[OpenLetters]
    causes: tuple[CauseLine, ...]
    chosen: str | None
    letters: tuple[Letter, ...]
    next: int | None
    letter: Part[Mapping[str, Any]] | None
    preview: Preview | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Every home, those with letters first, and the chosen one; topics that no definition names."""

    homes: tuple[HomeLine, ...]
    unknown: tuple[str, ...]
    detail: Detail | None
    problems: tuple[Problem, ...]


def dead_letters(look: Look, query: Query) -> DeadLetters:
    """List the homes of letters, or look at the one that the query names. Raises NotFound."""
    part = look.part(HOMES)
    if part.value is None:
        return DeadLetters((), (), None, _problems(part))
    key = query.get("home")
    if key is None:
        look.start(*(LETTERS.of(home) for home in part.value.homes))
        lines = [_line(home, look.part(LETTERS.of(home))) for home in part.value.homes]
        lines.sort(key=lambda line: (-(line.open or 0), line.key))
        return DeadLetters(tuple(lines), part.value.unknown, None, _problems(part))
    return DeadLetters((), (), _detail(look, part.value.named(key), query), _problems(part))


def _problems(part: Part[Homes]) -> tuple[Problem, ...]:
    own = () if part.problem is None else (part.problem,)
    return own if part.value is None else (*own, *part.value.problems)


def _line(home: Home, part: Part[OpenLetters]) -> HomeLine:
    open_letters = part.value
    if open_letters is None:
        return HomeLine(home, home.key, None, more=False, cause=None, problem=part.problem)
    return HomeLine(home, home.key, len(open_letters.letters), open_letters.more, open_letters.main_cause, part.problem)


def _detail(look: Look, home: Home, query: Query) -> Detail:
    letter_id = query.get("id") or None
    part = look.part(LETTERS.of(home))
    letter = None if letter_id is None else look.part(CONTENTS.of(home, letter_id))
    causes = tuple(CauseLine(_key_of(cause), cause) for cause in part.value.causes) if part.value else ()
    chosen, first = query.get("cause") or None, whole_number(query, "first") or 0
    letters = _letters_of(part.value, causes, chosen, letter_id) if part.value else ()
    if sought := query.get("text", "").strip().casefold():
        letters = tuple(letter for letter in letters if sought in _searched(letter))
    return Detail(
        home=home, key=home.key, command=home.command, open_letters=part, causes=causes, chosen=chosen,
        letters=letters[first : first + SHOWN], next=first + SHOWN if len(letters) > first + SHOWN else None,
        letter=letter, preview=_preview(query, letters),
    )  # fmt: skip


def _searched(letter: Letter) -> str:
    """What a search for a text looks at: what the list shows. A payload may be personal."""
    return f"{letter.id} {letter.origin} {letter.error} {letter.message}".casefold()


def _key_of(cause: Cause) -> str:
    return hashlib.sha256(f"{cause.error}\0{cause.pattern}".encode()).hexdigest()[:16]


def _letters_of(
    open_letters: OpenLetters, causes: Sequence[CauseLine], chosen: str | None, letter_id: str | None
) -> tuple[Letter, ...]:
    """The letters that an address means: one, those of a cause, or all."""
    if letter_id is not None:
        return tuple(letter for letter in open_letters.letters if letter.id == letter_id)
    if chosen is None:
        return open_letters.letters
    ids = {id_ for line in causes if line.key == chosen for id_ in line.cause.letters}
    return tuple(letter for letter in open_letters.letters if letter.id in ids)


def _preview(query: Query, letters: Sequence[Letter]) -> Preview | None:
    doing = query.get("do")
    if doing is None:
        return None
    if doing == "replay":
        refused = {letter.id: letter.why_not for letter in letters if letter.why_not is not None}
        return Preview("replay", tuple(one.id for one in letters if one.id not in refused), refused)
    if doing == "discard":
        return Preview("discard", tuple(letter.id for letter in letters), {})
    raise InvalidArgument(f"{doing[:40]!r} is nothing to do with letters", remedy="replay or discard them")


def _done(act: Callable[[Letters, list[str], Query], Settled], did: str) -> Callable[[Sources, Query], Outcome]:
    """An action on the letters whose ids the preview has shown; what came meanwhile is left alone."""

    def run(sources: Sources, fields: Query) -> Outcome:
        home = read_homes(sources.clients).named(required(fields, "home"))
        ids = required(fields, "ids").split()
        if len(ids) > LETTERS_READ:
            raise InvalidArgument(
                f"{len(ids):,} letters are too many for one form",
                remedy=f"factfold dlq {did.removesuffix('ed')} {home.command} --all",
            )
        with opened_home(sources.clients, home) as opened:
            return _outcome(opened.place, act(opened, ids, fields), did, home)

    return run


def _outcome(place: str, settled: Settled, did: str, home: Home) -> Outcome:
    left = [f"{letter}: {why}" for letter, why in settled.left.items()]
    waits = ["the group's subscriber handles them before it reads on"] if (home.kind, did) == _WAITS else []
    still = f", {len(left):,} of the chosen letters stay open" if left else ""
    return Outcome(f"{place}: {settled.count:,} {did}{still}", done=not left, details=(*waits, *left))


def _replay(opened: Letters, ids: list[str], fields: Query) -> Settled:
    return opened.replay(ids, by=_operator())


def _discard(opened: Letters, ids: list[str], fields: Query) -> Settled:
    return opened.discard(ids, why=fields.get("why", "").strip() or None, by=_operator())


def _edit(opened: Letters, ids: list[str], fields: Query) -> Settled:
    edited = edited_payload(required(fields, "payload"), place="the form")
    return opened.replay(ids, edit=edited, by=_operator())


def _operator() -> str:
    return f"{operator()} by the console"


def _check(sources: Sources, fields: Query) -> Outcome:
    """Compare an edited payload with that of its letter; changes nothing."""
    home, letter_id = read_homes(sources.clients).named(required(fields, "home")), required(fields, "ids")
    text = required(fields, "payload")
    edited = edited_payload(text, place="the form")
    with opened_home(sources.clients, home) as opened:
        before = opened.show(letter_id).payload or {}
    lines = list(_differences(before, edited))
    said = f"{len(lines) or 'no'} {'field differs' if len(lines) == 1 else 'fields differ'} in letter {letter_id}"
    return Outcome(said, details=lines, draft={"payload": text, "ids": letter_id})


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        old, new = (_written(values, name) for values in (before, after))
        if old != new:
            yield f"{name}: {old} → {new}"


def _written(values: Mapping[str, Any], name: str) -> str:
    return dump_plain(values[name]) if name in values else "(absent)"


_ON: Final = ("home", "ids", "why")

PAGE: Final = Page(
    "letters",
    "Dead letters",
    dead_letters,
    actions={
        "replay": Action(_done(_replay, "replayed"), audited=_ON),
        "discard": Action(_done(_discard, "discarded"), audited=_ON),
        "check": Action(_check, audited=("home", "ids")),
        "edit": Action(_done(_edit, "replayed"), audited=("home", "ids")),
    },
)
