"""The ways along which a batch's slices are cut: where a row of one table is there, the rows it points to are too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from projections.declaring.views import View

_MOST_COMBINED = 64  # of the columns that a condition may take a key from; the limit of what is checked


@dataclass(frozen=True)
class Origin:
    """A column of a table; ``row`` distinguishes the rows of a table that a plan reads at several places."""

    row: str
    table: str
    column: str


Origins = frozenset[Origin] | None
"""The columns of which a value is one, or null; None of a value that is computed."""

Same = Mapping[Origin, frozenset[Origin]]
Pair = tuple[frozenset[Origin], frozenset[Origin]]


@dataclass(frozen=True)
class Condition:
    """What holds of two rows that meet: values that are equal, and alternatives of which one holds."""

    pairs: tuple[Pair, ...] = ()
    either: tuple[tuple[Condition, ...], ...] = ()

    def __add__(self, other: Condition) -> Condition:
        return Condition(self.pairs + other.pairs, self.either + other.either)

    def turned(self) -> Condition:
        """The same of the rows in the other order."""
        either = tuple(tuple(one.turned() for one in alternatives) for alternatives in self.either)
        return Condition(tuple((b, a) for a, b in self.pairs), either)


class Paths:
    """Foreign keys of a view, and what follows from them: rows of one key are cut together."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.keys = {name: _key(view, name) for name in view.tables}
        self.nullable = any(table.key_may_be_null for table in view.tables.values())
        self._links = {(r.source, r.columns, r.target) for r in view.references}
        self._links |= {(name, key, name) for name, key in self.keys.items()}
        self._links |= set(self._twins())

    def _twins(self) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Tables that every foreign key to one of them points to, too."""
        for one in self.view.tables:
            to_one = {(r.source, r.columns) for r in self.view.references if r.target == one}
            for other in self.view.tables:
                to_other = {(r.source, r.columns) for r in self.view.references if r.target == other}
                if to_one and to_one <= to_other:
                    yield one, self.keys[one], other

    def lead(self, condition: Condition, same: Same, target: str) -> bool:
        """Whether rows that meet under a condition are cut together: the second is of a table, under its whole key."""
        if self._paired(condition.pairs, same, target, self.keys[target]):
            return True
        rest = condition.either
        return any(
            all(self.lead(Condition(condition.pairs, rest[:n] + rest[n + 1 :]) + one, same, target) for one in many)
            for n, many in enumerate(rest)
        )

    def _paired(self, pairs: Sequence[Pair], same: Same, target: str, key: Sequence[str]) -> bool:
        choices = [[a for a, b in pairs if self._is_key(b, target, place)] for place in range(len(key))]
        return any(self._all_lead(chosen, same, target) for chosen in product(*choices))

    def _is_key(self, origins: frozenset[Origin], target: str, place: int) -> bool:
        """Whether a value is a part of a table's key."""
        return bool(origins) and all(o.table == target and o.column == self.keys[target][place] for o in origins)

    def _all_lead(self, sources: Sequence[frozenset[Origin]], same: Same, target: str) -> bool:
        combined = list(product(*sources))
        return len(combined) <= _MOST_COMBINED and all(self._leads(one, same, target) for one in combined)

    def _leads(self, columns: Sequence[Origin], same: Same, target: str) -> bool:
        alike = [sorted({o, *same.get(o, ())}, key=str) for o in columns]
        return any(self._is_link(one, target) for one in product(*alike))

    def _is_link(self, columns: Sequence[Origin], target: str) -> bool:
        link = columns[0].table, tuple(o.column for o in columns), target
        return len({o.row for o in columns}) == 1 and link in self._links


def _key(view: View, name: str) -> tuple[str, ...]:
    table = view.table(name)
    return ("_valid.key",) if table.holds_versions else tuple(table.key)
