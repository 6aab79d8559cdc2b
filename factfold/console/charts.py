"""Charts over time of what runs: freshness, lag and throughput, from the samples that the console remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from factfold.console.sources import Look
from factfold.console.trends import Trend

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
