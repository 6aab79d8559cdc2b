"""A page: a model made from a look at the sources, the template that shows it, and the actions on it.

The model is a frozen dataclass. The page shows it and `/api/…` returns it as JSON, so both say the same.

Charts over time of what runs: freshness, lag and throughput, from the samples that the console remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from eventstore.errors import InvalidArgument, NotFound
from factfold.console.parts import Part, Problem, Trend
from factfold.console.sources import Look, Sources

T = TypeVar("T")

Query: TypeAlias = Mapping[str, str]
"""The parameters of a page's address, or the fields of an action's form."""

_DIGITS: Final = 10

FIRST: Final = "overview"
"""The page that `/` shows."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action did, in one line and with details; `done` is False if it was refused or failed.

    `draft` is what a form held that the page shows again, to be sent after a look at the outcome.
    """

    text: str
    done: bool = True
    details: Sequence[str] = ()
    draft: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a page changes; the fields named in `audited` go into its audit record."""

    run: Callable[[Sources, Query], Outcome]
    audited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A page at `/name`, with its JSON at `/api/name`, its template `name.html` and its actions at `/name/action`."""

    name: str
    title: str
    model: Callable[[Look, Query], Any]
    actions: Mapping[str, Action] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where the page is."""
        return "/" if self.name == FIRST else f"/{self.name}"


def chosen(things: Iterable[T], name: str, missing: str, *, by: Callable[[T], str]) -> T:
    """Return the thing that an address has chosen by its name. Raises NotFound: `missing` stands before the name."""
    for one in things:
        if by(one) == name:
            return one
    raise NotFound(f"{missing} {name[:120]!r}", remedy="choose one of the list")


def problems_of(*parts: Part[Any]) -> tuple[Problem, ...]:
    """Return what keeps parts from being read, each problem once."""
    return tuple(dict.fromkeys(part.problem for part in parts if part.problem is not None))


def declared(definition: T | None, what: str, *, place: str | None = None) -> T:
    """Return a definition. Raises NotFound if the console does not know what is called so."""
    if definition is None:
        remedy = "name its package: factfold console PACKAGE"
        raise NotFound(f"{what} is not declared here", remedy=remedy, place=place)
    return definition


def whole_number(query: Query, name: str) -> int | None:
    """Return a parameter as a number from 0, None if it is absent or empty. Raises InvalidArgument."""
    given = query.get(name, "").strip()
    if not given:
        return None
    if given.isascii() and given.isdigit() and len(given) <= _DIGITS:
        return int(given)
    raise InvalidArgument(f"{given[:40]!r} is no {name}", remedy="give a whole number from 0")


def required(query: Query, name: str) -> str:
    """Return a field of a form. Raises InvalidArgument if it is absent or empty."""
    value = query.get(name, "").strip()
    if not value:
        raise InvalidArgument(f"the field {name!r} is empty", remedy="fill it in, then send the form again")
    return value


_RATE: Final = "records per second"
# The figures of each kind: what they are, their unit, and the name of their trend.
_FIGURES: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    "group": (("freshness", "seconds", "group {}"), ("lag", "records", "group {} waiting"),
              ("throughput", _RATE, "group {} applied")),
    "subscription": (("freshness", "seconds", "subscription {}"), ("lag", "records", "subscription {} waiting"),
                     ("throughput", _RATE, "subscription {} handled")),
    "branches": (("lag", "records", "branches {}"), ("throughput", _RATE, "routed {}")),
    "relay": (("freshness", "seconds", "relay {}"), ("lag", "records", "relay {} waiting"),
              ("throughput", _RATE, "relay {} published")),
    "connector": (("lag", "bytes", "slot {}"),),
    "process": (("stuck", "instances", "process {}"),),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a thing over time, in a unit."""

    title: str
    unit: str
    trend: Trend


def figures(look: Look, kind: str, name: str) -> tuple[Figure, ...]:
    """Return the figures of a thing that its sources have given so far; none for a kind that has no figures."""
    every = (Figure(title, unit, look.trend(trend.format(name))) for title, unit, trend in _FIGURES.get(kind, ()))
    rated = (Figure(one.title, one.unit, one.trend.per_second()) if one.unit == _RATE else one for one in every)
    return tuple(one for one in rated if one.trend.samples)
