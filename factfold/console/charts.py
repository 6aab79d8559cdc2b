"""Charts over time of what runs: freshness, lag and throughput, from the samples that the console remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from factfold.console.drawing import Chart, chart
from factfold.console.sources import Look
from factfold.console.trends import Direction

Unit = Literal["seconds", "records", "records per second", "bytes", "instances"]

# The figures of each kind: what they are, their unit, and the name of the trend behind that of the thing.
_FIGURES: Final[Mapping[str, tuple[tuple[str, Unit, str], ...]]] = {
    "group": (("freshness", "seconds", "group {}"), ("lag", "records", "group {} waiting"),
              ("throughput", "records per second", "group {} applied")),
    "subscription": (("freshness", "seconds", "subscription {}"), ("lag", "records", "subscription {} waiting"),
                     ("throughput", "records per second", "subscription {} handled")),
    "branches": (("lag", "records", "branches {}"), ("throughput", "records per second", "routed {}")),
    "relay": (("freshness", "seconds", "relay {}"), ("lag", "records", "relay {} waiting"),
              ("throughput", "records per second", "relay {} published")),
    "connector": (("lag", "bytes", "slot {}"),),
    "process": (("stuck", "instances", "process {}"),),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a thing over time, in a unit; `chart` is None before the second sample."""

    title: str
    unit: Unit
    newest: float | None
    direction: Direction
    chart: Chart | None


def figures(look: Look, kind: str, name: str) -> tuple[Figure, ...]:
    """Return the charts of a thing; none for a kind that has no figures. A figure that no source gives is left out."""
    every = tuple(_figure(look, title, unit, trend.format(name)) for title, unit, trend in _FIGURES.get(kind, ()))
    return tuple(one for one in every if one.newest is not None) or every[:1]


def _figure(look: Look, title: str, unit: Unit, name: str) -> Figure:
    trend = look.trend(name)
    if unit == "records per second":
        trend = trend.per_second()
    newest = trend.samples[-1] if trend.samples else None
    return Figure(title, unit, newest, trend.direction, chart(trend.samples, trend.times))
