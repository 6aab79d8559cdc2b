"""The references that a view leaves to its plan: the equalities under which rows of its tables meet.

What is read here is a proposal. ``lineage`` decides whether a batch answers as a rebuild does, by inferred references
as by declared ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Final

from projections.declaring.views import Reference, View
from projections.planning.lineage import Tracing
from projections.planning.paths import Condition, Origin, Pair, Paths, Same
from projections.planning.plans import Node
from projections.planning.rows import Rows, Untraceable

_MOST_COMBINED: Final = 64  # columns from which one meeting may take a key

Link = tuple[str, tuple[str, ...]]
"""A table, and the columns of it that hold the key of another one."""


def inferred(view: View, plan: Node) -> tuple[Reference, ...]:
    """The foreign keys that the conditions of a view's plan compare with whole keys, from the roots on."""
    return tuple(_in_order(view, _links(view, plan)))


def _links(view: View, plan: Node) -> list[Mapping[str, set[Link]]]:
    """By table, the columns that are compared with its whole key: those that distinguish joined rows, and all."""
    meetings = _Meetings(replace(view, declared=()))
    with suppress(Untraceable):  # is refused by the same tracing, once the references are known
        meetings.rows(plan, ())
    keys = Paths(replace(view, declared=())).keys
    return [
        {name: {one for equal in equals for one in equal.links(name, keys[name])} for name in view.tables}
        for equals in (meetings.equal, meetings.likely)
    ]


class _Meetings(Tracing):
    """The rows of a plan that meet, each time taken for a meeting along a reference.

    ``equal`` has the values that are equal then, of each alternative; the first rows lead to the second ones. Those of
    ``likely`` lead to rows that are joined with others already, and may not distinguish the joined rows.
    """

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.equal: list[_Equal] = []
        self.likely: list[_Equal] = []

    def _leads(self, source: Rows, target: Rows, condition: Condition) -> bool:
        for pairs in _alternatives(condition):
            self.equal.append(_Equal(pairs, source.same, target.keys))
            self.likely.append(_Equal(pairs, source.same, frozenset(target.tables)))
        return True


def _alternatives(condition: Condition) -> list[tuple[Pair, ...]]:
    """The values that are equal in any case, and those of each alternative."""
    alternatives = [condition.pairs]
    for many in condition.either:
        alternatives += [condition.pairs + pairs for one in many for pairs in _alternatives(one)]
    return alternatives


@dataclass(frozen=True)
class _Equal:
    """Values that are equal where rows meet, columns of the first that equal others of these, and the second ones."""

    pairs: tuple[Pair, ...]
    same: Same
    rows: frozenset[str]

    def links(self, target: str, key: Sequence[str]) -> set[Link]:
        """The foreign keys of one row that are compared with a whole key: as written, or by columns equal to them."""
        rows = sorted({b.row for _, theirs in self.pairs for b in theirs if b.table == target and b.row in self.rows})
        sought = [[Origin(row, target, column) for column in key] for row in rows]
        return {
            link for parts in sought for link in self._of_one_row(map(self._equal_to, parts))
            or self._of_one_row(map(self._likewise_equal_to, parts))
        }  # fmt: skip

    def _equal_to(self, origin: Origin) -> set[Origin]:
        return {a for ours, theirs in self.pairs if origin in theirs for a in ours}

    def _likewise_equal_to(self, origin: Origin) -> set[Origin]:
        return {o for a in self._equal_to(origin) for o in (a, *self.same.get(a, ()))}

    def _of_one_row(self, choices: Iterable[set[Origin]]) -> set[Link]:
        combined = islice(product(*(sorted(some, key=str) for some in choices)), _MOST_COMBINED)
        return {
            (chosen[0].table, tuple(o.column for o in chosen))
            for chosen in combined
            if len({(o.row, o.table) for o in chosen}) == 1
        }


def _in_order(view: View, links: Sequence[Mapping[str, set[Link]]]) -> Iterator[Reference]:
    """The references from tables that are reached to those that they reach next, so that none leads back."""
    reached, left = [view.root], [name for name in view.tables if name != view.root]
    while step := _next(reached, left, links):
        target, sources = step
        yield from (Reference(source, columns, target) for source, columns in sources)
        reached.append(target)
        left.remove(target)


def _next(
    reached: Sequence[str], left: Sequence[str], links: Sequence[Mapping[str, set[Link]]]
) -> tuple[str, list[Link]] | None:
    """A table that is reached now, and by which foreign keys; one to which others lead comes after all of them."""
    for some in links:
        near = [name for name in left if any(source in reached for source, _ in some[name])]
        if near:
            target = next((name for name in near if all(source in reached for source, _ in some[name])), near[0])
            sources = [link for link in some[target] if link[0] in reached]
            return target, sorted(sources, key=lambda link: (reached.index(link[0]), link[1]))
    return None
