"""Where the rows of an operator in a view's plan come from, and which rows are cut together.

The second are the ways along which a batch's slices are cut: where a row of one table is there, the rows it points to
are too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from projections.declaring.views import View
from projections.planning.plans import Node, operators

_MOST_COMBINED = 64  # of the columns that a condition may take a key from; the limit of what is checked
MARK: Final = "spark.sessionWindow"
"""In the metadata of the attribute that Spark makes of ``session_window``."""


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


class Untraceable(Exception):
    """What a plan does that a batch's slices may not answer, and what to write instead."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


@dataclass(frozen=True)
class Rows:
    """The rows of an operator: from which columns of which tables its own come.

    ``keys`` are the rows of tables that tell one of these rows from another, and ``tables`` says of which tables.
    ``present`` are attributes that are never null, and ``repeated`` says by what a row may be there several times; a
    filter of ``generated`` attributes may take such rows away.
    """

    columns: dict[int, Origins]
    keys: frozenset[str] = frozenset()
    tables: dict[str, str] = field(default_factory=dict)
    same: Same = field(default_factory=dict)
    present: frozenset[int] = frozenset()
    repeated: str | None = None
    generated: frozenset[int] = frozenset()
    filtered: bool = False

    def and_of(self, other: Rows) -> Rows:
        """What both say, of rows that meet."""
        return Rows(
            {**self.columns, **other.columns},
            self.keys | other.keys,
            {**self.tables, **other.tables},
            {**self.same, **other.same},
            self.present | other.present,
            self.repeated or other.repeated,
            self.generated | other.generated,
            self.filtered or other.filtered,
        )


def equated(same: Same, pairs: Sequence[Pair], *, only_right: bool) -> Same:
    """Columns whose value is that of another, or null."""
    equal = {origin: set(others) for origin, others in same.items()}
    for left, right in pairs:
        if len(left) == len(right) == 1:
            (a,), (b,) = left, right
            equal.setdefault(b, set()).update({a, *equal.get(a, ())})
            if not only_right:
                equal.setdefault(a, set()).update({b, *equal.get(b, ())})
    return {origin: frozenset(others - {origin}) for origin, others in equal.items()}


def any_of(origins: Sequence[Origins]) -> Origins:
    """The columns of which a value is one that is one of some values."""
    known = [one for one in origins if one is not None]
    return frozenset().union(*known) if len(known) == len(origins) else None


def renamed(rows: Rows, pairs: Iterable[tuple[Any, Any]]) -> Rows:
    """The same under other attributes."""
    names = {old.id: new.id for old, new in pairs}
    columns = {new: rows.columns.get(old) for old, new in names.items()}
    present = frozenset(new for old, new in names.items() if old in rows.present)
    return replace(rows, columns=columns, present=present)


def distinguish(
    rows: Rows, keys: Mapping[str, tuple[str, ...]], parts: Sequence[Node], /, *, present: bool = False
) -> bool:
    """Whether rows that are equal in some expressions are one row: the keys of their tables are among these."""
    ids = {part.id for part in parts if part.is_attribute}
    compared = {o for id in ids for o in rows.columns.get(id) or () if len(rows.columns[id] or ()) == 1}
    named = {(o.row, o.column) for o in compared}
    return (
        rows.repeated is None
        and bool(rows.keys)
        and all(row in rows.tables and {(row, c) for c in keys[rows.tables[row]]} <= named for row in rows.keys)
    )


def named_tables(rows: Rows) -> str:
    """The tables of the rows, for an error."""
    return ", ".join(sorted(set(rows.tables.values()))) or "no table"


def require_merged_sessions(plan: Node) -> None:
    """Refuse a session of which a value is read before its rows are grouped by it. Untraceable.

    Only an aggregate that groups by the session itself merges the windows of its rows. Anywhere else ``session_window``
    gives each row a window of its own, without an error.
    """
    open_ones, defined = set[int](), dict[int, tuple[Node, ...]]()
    for node in operators(plan):
        if node.kind == "CTERelationDef":
            defined[node.arguments["id"]] = node.output
        if node.kind == "CTERelationRef":  # a reference to itself comes before what it refers to
            pairs = zip(defined.get(node.arguments["cteId"], ()), node.output, strict=False)
            open_ones |= {a.id for inner, a in pairs if inner.id in open_ones}
        made = {one.id for one in _named(node) if _is_session(one)}
        grouped = {one.id for one in node.all("groupingExpressions") if one.is_attribute}
        for expression in node.expressions:
            handed_on = node.kind == "Project" and expression.bare.is_attribute
            if not handed_on and set(expression.references) & open_ones - grouped and not _is_of_spark(node):
                raise _refused()
            if handed_on and expression.bare.id in open_ones:
                made.add(expression.id)
        open_ones = (open_ones | made) - grouped
    if any(attribute.id in open_ones for attribute in plan.output):
        raise _refused()


def _named(node: Node) -> Iterator[Node]:
    """The records of two parts that a selection computes."""
    listed = node.all("projectList") if node.kind == "Project" else ()
    return (one for one in listed if one.kind == "Alias" and one.bare.kind == "CreateNamedStruct")


def _is_session(named: Node) -> bool:
    return bool(named.jvm.metadata().contains(MARK))


def _is_of_spark(node: Node) -> bool:
    """Whether it is the filter that Spark puts over the windows that it makes: those of a length above zero."""
    return node.kind == "Filter" and any(map(_is_session, _named(node.children[0])))


def _refused() -> Untraceable:
    return Untraceable(
        "the start or the end of a session_window for single rows, which are in no session yet",
        "group by the whole: GROUP BY bidder, session_window(at, '10 seconds'), and select session_window.start",
    )
