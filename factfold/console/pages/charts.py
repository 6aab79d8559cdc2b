"""Charts: freshness, lag and throughput over time, of everything that runs or of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from factfold.console.charts import Figure, figures
from factfold.console.page import Page, Query, chosen
from factfold.console.pages.overview import Watched, overview
from factfold.console.sources import Look

_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Thing:
    """What runs, with its charts."""

    watched: Watched
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Charts:
    """The chosen thing, or the first ones with the worst health first; `others` have charts of their own."""

    things: tuple[Thing, ...]
    others: tuple[Watched, ...]


def charts(look: Look, query: Query) -> Charts:
    """Draw the figures of what the query names as `kind` and `name`, or of what is worst. Raises NotFound."""
    watched = [one for one in overview(look, {}).watched if figures(look, one.kind, one.name)]
    kind, name = query.get("kind"), query.get("name")
    if name is not None:
        match = next((one for one in watched if (one.kind, one.name) == (kind, name)), None)
        shown = [chosen(match, f"there are no charts of {name[:80]!r}")]
    else:
        shown = watched[:_SHOWN]
    things = tuple(Thing(one, figures(look, one.kind, one.name)) for one in shown)
    return Charts(things, tuple(one for one in watched if one not in shown))


PAGE: Final = Page("charts", "Charts", charts)
