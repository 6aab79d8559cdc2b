"""Stream: a search of events; one stream, its state at a version and what changed; what a conversation led to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from eventstore.identifiers import StreamName
from factfold.console.page import Page, Query, whole_number
from factfold.console.parts import Part, Problem
from factfold.console.readings.processes import OWN_CATEGORIES
from factfold.console.readings.store import STORE
from factfold.console.readings.streams import (
    EVENTS,
    PLACE,
    STATE,
    TIMELINE,
    TRACE,
    EventJson,
    Search,
    SearchResult,
    StateField,
    Timeline,
    TraceShown,
)
from factfold.console.sources import Look

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

    Raises FieldWrong for a version that is no number, and InvalidIdentifier, InvalidBound, DeclarationError.
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
