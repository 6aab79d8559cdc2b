"""SQL: a SELECT that a person writes over the views of a group that serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from factfold.console.page import Page, Query, chosen
from factfold.console.parts import Part, Problem
from factfold.console.readings.groups import GROUPS
from factfold.console.readings.views import QUERY, ShownRows
from factfold.console.sources import Look


@dataclass(frozen=True, slots=True)
class Asked:
    """The groups that serve, the chosen one with its views, the text and its rows."""

    groups: tuple[str, ...]
    group: str | None
    views: tuple[str, ...]
    text: str
    rows: Part[ShownRows] | None
    problem: Problem | None


def asked(look: Look, query: Query) -> Asked:
    """Run the text that the query has over its group. Raises NotFound for a group that does not serve."""
    part = look.part(GROUPS)
    serving = {group.name: group for group in part.value or () if group.serving is not None}
    name, text = query.get("group") or next(iter(serving), None), query.get("sql", "").strip()
    if name is None or part.value is None:
        return Asked(tuple(serving), None, (), text, None, part.problem)
    group = chosen(serving.get(name), f"no group {name[:80]!r} serves")
    generation = group.serving["generation"] if group.serving else 0
    rows = look.part(QUERY.of(name, generation, group.views, text)) if text else None
    return Asked(tuple(serving), name, group.views, text, rows, part.problem)


PAGE: Final = Page("sql", "SQL", asked)
