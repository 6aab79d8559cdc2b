"""Stream: a search of events; one stream, its state at a version and what changed; what a conversation led to.

Each is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from eventstore.backends.sql.process_rows import SqlInboxes
from eventstore.backends.sql.replaying import parse_position
from eventstore.errors import FactfoldError, NotFound
from eventstore.identifiers import StreamName
from eventstore.inspection.store_log import event_at, stream_state
from eventstore.inspection.tracing import trace
from eventstore.shown_urls import shown_url
from factfold.cli.events.entries import Chosen, entry_as_json, masked_entries, trace_as_json
from factfold.cli.show import as_json
from factfold.console.page import Page, Query, whole_number
from factfold.console.pages.standing import STORE
from factfold.console.pages.subscriptions import OWN_CATEGORIES, opened_step, read_own_categories
from factfold.console.parts import Part, Problem
from factfold.console.sources import Clients, Look, Reading

if TYPE_CHECKING:
    from eventstore import RecordedEvent, SqlEventStore
    from eventstore.inspection.selection import Entry, Selection

EVENTS_SHOWN: Final = 50
TRACED: Final = 1_000
_STEPPED: Final = "process.stepped"
LOOKED_AT: Final = 2_000  # events that one page of a search for a text looks at
FOLDED: Final = 20_000  # events that a page folds: more take seconds

EventJson = Mapping[str, Any]
"""An event as `factfold events show --json` prints it. Its data are values, and those of a step are opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What a search was given, as it was typed; None for what was left empty."""

    stream: str | None = None
    category: str | None = None
    type: str | None = None
    text: str | None = None
    since: str | None = None
    until: str | None = None
    correlation: str | None = None

    @property
    def selection(self) -> Selection:
        """The selection of it. Raises InvalidIdentifier, InvalidArgument, DeclarationError."""
        streams, categories, types = ([one] if one else [] for one in (self.stream, self.category, self.type))
        selection = Chosen(streams, categories, types, self.since, self.until, self.correlation).selection()
        selection.require_names()
        return selection

    @property
    def is_wide(self) -> bool:
        """Whether steps of processes would stand between all other events."""
        return not (self.stream or self.category or self.type or self.correlation)

    def has(self, event: EventJson) -> bool:
        """Whether an event as it is shown has the text, in capitals or not."""
        shown = f"{event['type']} {event['stream']} {json.dumps(as_json(event['data']), ensure_ascii=False)}"
        return not self.text or self.text.casefold() in shown.casefold()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The newest events of a search, the newest first; `older` is the position to go on from.

    A search for a text looks at so many events at most, which is `looked_at`.
    """

    events: Sequence[EventJson]
    older: str | None
    looked_at: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A part of a stream, the newest version first."""

    stream: str
    head: int
    archived: bool
    events: Sequence[EventJson]


@dataclass(frozen=True, slots=True)
class StateField:
    """A field of a state, as it is after an event and before it."""

    name: str
    before: Any
    after: Any
    changed: bool


@dataclass(frozen=True, slots=True)
class TraceShown:
    """A conversation as `factfold trace --json` prints it; `more` says that it has more events than are shown."""

    steps: Sequence[Mapping[str, Any]]
    more: bool


def read_events(clients: Clients, search: Search, before: str | None) -> SearchResult:
    """Return the newest events of a search, or those before a position; steps of processes if it asks for them."""
    place = None if before is None else parse_position(before)
    selection = _without_steps(clients, search.selection) if search.is_wide else search.selection
    limit = LOOKED_AT if search.text else EVENTS_SHOWN
    newest = clients.store.read_selected(selection, before=place, newest_first=True, limit=limit + 1)
    matches, last, looked_at = list[EventJson](), None, 0
    for event in newest:
        if len(matches) == EVENTS_SHOWN or looked_at == limit:
            return SearchResult(matches, last, looked_at)
        matches += filter(search.has, _shown(clients, [event]))
        last, looked_at = event.position.text, looked_at + 1
    return SearchResult(matches, None, looked_at)


def _without_steps(clients: Clients, selection: Selection) -> Selection:
    """Leave the steps of processes out, which are many, unless the store has nothing else."""
    own = read_own_categories(clients)
    others = tuple(one.name for one in clients.store.categories() if one.name not in own)
    return replace(selection, categories=others) if own else selection


def read_place(clients: Clients, event_id: str) -> tuple[str, int]:
    """Return the stream and the version of an event. Raises NotFound."""
    event = clients.store.find(UUID(event_id))
    if event is None:
        raise NotFound(
            f"no event has the id {event_id}",
            remedy="check the id. Events of deleted streams are deleted too",
            code="events-not-found",
        )
    return event.stream, event.version


def read_timeline(clients: Clients, stream: str, at: int | None) -> Timeline:
    """Return the part of a stream around a version, its end without. Raises NotFound."""
    store = clients.store
    event = event_at(store, stream, version=at)
    head = store.head(stream)
    newest = event.version if head is None else min(head, event.version + EVENTS_SHOWN // 2)
    first = max(0, newest - EVENTS_SHOWN + 1)
    events = list(store.read_stream(stream, from_version=first, to_version=newest))
    return Timeline(stream, newest if head is None else head, store.is_archived(stream), _shown(clients, events[::-1]))


def read_state(clients: Clients, target: str, stream: str, version: int) -> tuple[StateField, ...]:
    """Return the state of a stream at a version, with what its event changed.

    Raises FactfoldError, NotFound, KeysMissing.
    """
    if version >= FOLDED:
        raise FactfoldError(
            f"version {version:,} is the fold of more than {FOLDED:,} events",
            remedy=f"factfold streams show {stream} {target} --at {version}",
            code="state-too-long",
        )
    state = stream_state(clients.store, clients.definitions.aggregates[target], stream, version=version)
    names = dict.fromkeys([*state.after, *state.before])
    changes = state.changes
    return tuple(StateField(one, state.before.get(one), state.after.get(one), one in changes) for one in names)


def read_trace(clients: Clients, correlation: str) -> TraceShown:
    """Return what a conversation led to, by the store and the inboxes that are configured. Raises NotFound."""
    log = _Beginning(clients.store)
    engines = [clients.store.engine, *([clients.database] if clients.database is not None else [])]
    conversation = trace(correlation, [log], inboxes=[SqlInboxes(engine) for engine in engines])
    steps = zip(conversation.steps, trace_as_json(conversation)["steps"], strict=True)
    return TraceShown([{**shown, "event": step.entry and _of_entry(step.entry)} for step, shown in steps], log.more)


class _Beginning:
    """The events of a store as a log that a trace reads the first events of, personal values masked."""

    def __init__(self, store: SqlEventStore) -> None:
        self._store = store
        self.more = False

    @property
    def name(self) -> str:
        """The store's URL without its password."""
        return shown_url(self._store.engine.url)

    def read(self, selection: Selection) -> Iterator[Entry]:
        """Yield the first events of a selection; `more` says then whether there are others."""
        events = list(islice(self._store.read_selected(selection), TRACED + 1))
        self.more = len(events) > TRACED
        yield from masked_entries(self._store, events[:TRACED])


def _shown(clients: Clients, events: Sequence[RecordedEvent]) -> tuple[EventJson, ...]:
    return tuple(map(_of_entry, masked_entries(clients.store, events)))


def _of_entry(entry: Entry) -> EventJson:
    is_step = entry.event is not None and entry.event.type == _STEPPED
    return {**entry_as_json(entry), "data": opened_step(entry.data) if is_step else entry.data}


EVENTS: Final = Reading(read_events)
PLACE: Final = Reading(read_place)
TIMELINE: Final = Reading(read_timeline)
STATE: Final = Reading(read_state)
TRACE: Final = Reading(read_trace)


_SEARCHED: Final = ("category", "type", "since", "until", "correlation", "text")
_PLACE: Final = re.compile(r"(?P<stream>[^@]*-.*)@(?P<version>\d{1,10})")
_AROUND: Final = (-100, -10, -3, -2, -1, 0, 1, 2, 3, 10, 100)


@dataclass(frozen=True, slots=True)
class StateAt:
    """The state after an event, by the aggregate of its category; `target` is None if that is not declared here."""

    target: str | None
    fields: Part[tuple[StateField, ...]] | None


@dataclass(frozen=True, slots=True)
class Detail:
    """One stream: the part around a version, the event of it, the versions to step to, and the state there."""

    stream: str
    at: int | None
    timeline: Part[Timeline]
    event: EventJson | None
    versions: tuple[int, ...]
    state: StateAt


@dataclass(frozen=True, slots=True)
class Streams:
    """What was searched for, and one of: events, a stream, a conversation; `folded` are the steps of processes."""

    search: Mapping[str, str]
    categories: tuple[str, ...]
    folded: tuple[str, ...] = ()
    events: Part[SearchResult] | None = None
    detail: Detail | None = None
    trace: Part[TraceShown] | None = None
    problem: Problem | None = None


def streams(look: Look, query: Query) -> Streams:
    """Search events, or look at what the query names.

    Raises InvalidArgument for a version that is no number, and InvalidIdentifier, InvalidArgument, DeclarationError.
    """
    look.start(STORE, OWN_CATEGORIES)
    given = {name: query[name].strip() for name in (*_SEARCHED, "in", "find") if query.get(name, "").strip()}
    search = Search(stream=given.get("in"), **{name: given.get(name) for name in _SEARCHED})
    target = _named(look, query, given.get("find"))
    if isinstance(target, Problem):
        return Streams(given, _categories(look), problem=target)
    if target is not None:
        return Streams(given, _categories(look), detail=_detail(look, *target))
    if query.get("trace", "").strip():
        return _traced(look, given, query["trace"].strip())
    search.selection  # noqa: B018 - what cannot be searched for is refused here, and not within the part
    part = look.part(EVENTS.of(search, query.get("before") or None))
    folded = look.part(OWN_CATEGORIES).value or () if search.is_wide else ()
    return Streams(given, _categories(look), folded, events=part, problem=part.problem)


def _named(look: Look, query: Query, find: str | None) -> tuple[str, int | None] | Problem | None:
    """The stream and version that an address names, or what was typed: a stream, a place in it, or an event's id."""
    stream, at = query.get("stream", "").strip(), whole_number(query, "at")
    if find is not None:
        if (event_id := _id(find)) is not None:
            part = look.part(PLACE.of(event_id))
            return part.problem or part.value
        place = _PLACE.fullmatch(find)
        stream, at = (place["stream"], int(place["version"])) if place else (find, None)
    return (str(StreamName.parse(stream)), at) if stream else None


def _id(text: str) -> str | None:
    try:
        return str(UUID(text))
    except ValueError:
        return None


def _traced(look: Look, given: Mapping[str, str], correlation: str) -> Streams:
    Search(correlation=correlation).selection  # noqa: B018 - raises InvalidIdentifier
    part = look.part(TRACE.of(correlation))
    return Streams(given, _categories(look), trace=part, problem=part.problem)


def _categories(look: Look) -> tuple[str, ...]:
    store = look.part(STORE).value
    return () if store is None else tuple(category.name for category in store.categories)


def _detail(look: Look, stream: str, at: int | None) -> Detail:
    part = look.part(TIMELINE.of(stream, at))
    timeline = part.value
    if timeline is None:
        return Detail(stream, at, part, None, (), StateAt(None, None))
    version = timeline.head if at is None else at
    event = next((one for one in timeline.events if one["version"] == version), None)
    return Detail(stream, at, part, event, steps(timeline.head, version), _state(look, stream, version))


def _state(look: Look, stream: str, version: int) -> StateAt:
    category = stream.partition("-")[0]
    target = next((one for one, kind in look.definitions.aggregates.items() if kind.category == category), None)
    return StateAt(target, None if target is None else look.part(STATE.of(target, stream, version)))


def steps(head: int, version: int) -> tuple[int, ...]:
    """Return the versions to step to from one of them: near ones, far ones, the first and the last."""
    near = {version + step for step in _AROUND}
    return tuple(sorted({0, head, *(one for one in near if 0 <= one <= head)}))


PAGE: Final = Page("stream", "Streams", streams)
