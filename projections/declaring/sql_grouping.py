"""A query that groups joined rows, or groups by what it computes, as two: the rows of one view are grouped by another.

The store finds the groups of a changed row by columns of one table (ADR 0064). The rows get the columns that the query
groups by, those inside its aggregates, and the keys that tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from projections.declaring.naming import is_column
from projections.declaring.sql_clauses import Clauses, Item, clauses
from projections.declaring.sql_queries import Query
from projections.declaring.sql_text import DIALECT
from projections.errors import InvalidDefinition

_KNOWN = frozenset(
    {"expressions", "from_", "joins", "laterals", "where", "group", "having", "distinct", "with_", "order"}
)
_INNER = (exp.Subquery, exp.Select, exp.SetOperation)


@dataclass(frozen=True)
class Parted:
    """The texts of two views: of ``rows``, and of ``groups`` over the view of the rows, by some of its columns.

    The text means its results by ``aliases``, if none of them is a column of what the rows are selected from.
    """

    rows: str
    groups: str
    aliases: frozenset[str]


def parted(query: Query, rows: str, *, sides: bool = True) -> Parted | None:
    """A query as two, of which the first is called ``rows``. None if it groups by columns of its tables, as they are.

    With ``sides``, the rows have the keys of tables that right and full joins keep. Raises InvalidDefinition.
    """
    if not query.is_grouped:
        return None
    _require_known(query)
    return None if query.group_columns else _Parting(query).parted(rows, sides=sides)


def _require_known(query: Query) -> None:
    """Refuse clauses that depend on more than the rows of a group, such as LIMIT."""
    if other := sorted(name for name, value in query.select.args.items() if value and name not in _KNOWN):
        raise _unreadable(query, ", ".join(other).upper())


def _unreadable(query: Query, what: str) -> InvalidDefinition:
    return InvalidDefinition(
        f"view {query.name!r} groups rows and has {what}",
        remedy="write SELECT … FROM … WHERE … GROUP BY … HAVING …, without more",
        place=f"view {query.name}",
    )


class _Parting:
    def __init__(self, query: Query) -> None:
        self._query, self._text = query, query.text.text
        self._clauses = self._readable()
        self._rows: dict[str, str] = {}  # what the view of the rows selects, by the name that it has there
        self._known: dict[tuple[str, str], str] = {}  # the name there of a column of the query
        self._aliases: set[str] = set()  # the names that were taken for results, and not for columns
        self._taken = {item.name.lower() for item in self._clauses.items if item.name}

    def parted(self, rows: str, *, sides: bool) -> Parted:
        for alias, column in self._query.row_key():
            self._add(_written(alias, column), column)
            self._known[alias, column.lower()] = column
        keys = self._keys()
        for item in keys:
            self._add_key(item)
        for alias, column in self._query.sides() if sides else ():
            self._name_of(alias, column)
        items = [f"`{i.name}`" if i in keys else self._shown(i) for i in self._clauses.items]
        by = ", ".join(f"`{item.name}`" for item in keys)
        distinct, grouped = ("DISTINCT ", "") if self._query.is_distinct else ("", f" GROUP BY {by}")
        groups = f"{distinct}{', '.join(items)} FROM {rows}{grouped}{self._having()}"
        selected = ", ".join(f"{expression} AS `{name}`" for name, expression in self._rows.items())
        text = f"{self._clauses.before}SELECT {selected} {self._clauses.rows}"
        return Parted(text, f"SELECT {groups}", frozenset(self._aliases))

    # ---- what the query says

    def _readable(self) -> Clauses:
        select = self._query.select
        parsed = clauses(self._text, self._query.text.tokens, select)
        if parsed is None:
            raise _unreadable(self._query, "its clauses in another order")
        having = select.args.get("having")
        shown = [*(item.expression for item in parsed.items), *([having] if having else [])]
        if inner := next((part for one in shown for part in one.find_all(*_INNER)), None):
            raise self._refused(
                f"groups rows, and has a subquery outside of FROM and WHERE: {inner.sql(DIALECT)}",
                "write the groups as a view, and join the subquery in another one that reads it",
            )
        if any(part.name.lower() == "session_window" for one in shown for part in one.find_all(exp.Anonymous)):
            raise self._refused(
                "groups by a session_window, which each of its rows would have to itself",
                "declare the sessions as a table, windowed('visits', clicks, session('1 hour', by='user_id'), on='at'),"
                " and group by its window_start",
            )
        if any(not isinstance(star.parent, exp.Count) for part in shown for star in part.find_all(exp.Star)):
            raise self._refused("groups rows and selects *", "name the columns")
        return parsed

    def _keys(self) -> list[Item]:
        """The columns of the result that tell the groups apart."""
        items = self._clauses.items
        keys = list(items) if self._query.is_distinct else [self._selected(part) for part in self._query.groups]
        for item in keys:
            if item.name is None:
                text = self._text[item.start : item.end]
                raise self._refused(f"groups by {text!r} and gives it no name", f"name it: {text} AS name")
        return list(dict.fromkeys(keys))

    def _selected(self, part: exp.Expr) -> Item:
        """The column of the result that GROUP BY means: by its place, its alias, or the same expression."""
        items = self._clauses.items
        if part.is_int and 0 < int(part.name) <= len(items):
            return items[int(part.name) - 1]
        if self._is_alias(part):
            return next(item for item in items if item.alias and item.alias.lower() == part.name.lower())
        canonical = self._canonical(part)
        for item in items:
            if self._canonical(item.expression.unnest()) == canonical:
                return item
        text = part.sql(DIALECT).strip()
        raise self._refused(f"groups by {text!r} and does not select it", f"select it: {text} AS name")

    def _is_alias(self, part: exp.Expr) -> bool:
        """Whether a name is that of a selected expression, and of no column: Spark prefers columns."""
        if not isinstance(part, exp.Column) or len(part.parts) > 1 or self._query.names.has_column(part.name):
            return False
        name = part.name.lower()
        named = [item for item in self._clauses.items if item.alias and item.alias.lower() == name]
        columns = {self._query.names.place_of(c)[0][1] for c in _columns(named[0].expression)} if named else set()
        if not named or name in columns:
            return False
        self._aliases.add(name)
        return True

    def _canonical(self, part: exp.Expr) -> str:
        copy = part.copy()
        for column in [copy] if isinstance(copy, exp.Column) else _columns(copy):
            (alias, name), rest = self._query.names.place_of(column)
            for old in ("catalog", "db"):
                column.set(old, None)
            column.set("table", exp.to_identifier(alias or "-", quoted=True))
            column.set("this", exp.to_identifier(".".join([name, *rest]), quoted=True))
        return str(copy.sql(DIALECT))

    # ---- the two texts

    def _add(self, expression: str, name: str) -> None:
        if name.lower() in {known.lower() for known in self._rows}:
            raise self._refused(
                f"groups by {expression} under the name {name!r}, and has another {name!r} to tell its rows apart",
                f"give it a name of its own: {expression} AS {_short(expression)}",
            )
        self._rows[name] = expression

    def _add_key(self, item: Item) -> None:
        name, inner = item.name or "", item.expression
        place = self._query.names.place_of(inner) if isinstance(inner, exp.Column) else None
        if place and not place[1]:
            if self._known.get(place[0], "").lower() == name.lower():
                return
            self._known[place[0]] = name
        self._add(self._text[item.start : item.end], name)

    def _name_of(self, alias: str, column: str) -> str:
        """The name that a column of the query has among the rows, from its first use on."""
        name = self._known.get((alias, column.lower()))
        if name is None:
            name = self._free_name(alias, column)
            self._known[alias, column.lower()] = name
            self._add(_written(alias, column), name)
        return name

    def _free_name(self, alias: str, column: str) -> str:
        taken = self._taken | {name.lower() for name in self._rows}
        numbered = (f"column_{number}" for number in range(1, len(taken) + 2))
        for name in (column, f"{alias}_{column}", *numbered):
            if is_column(name) and name.lower() not in taken:
                return name
        raise AssertionError("one of so many numbers is free")

    def _shown(self, item: Item) -> str:
        text = self._over_rows(_columns(item.expression), item.start, item.end)
        return text if item.alias is None else f"{text} AS `{item.alias}`"

    def _having(self) -> str:
        having, place = self._query.select.args.get("having"), self._clauses.having
        if having is None or place is None:
            return ""
        for column in _columns(having):
            self._require_clear(column)
        return f" HAVING{self._over_rows(_columns(having), *place)}"

    def _require_clear(self, column: exp.Column) -> None:
        name = column.name.lower()
        results = [item.alias for item in self._clauses.items if item.alias and item not in self._keys()]
        is_result = len(column.parts) == 1 and name in {alias.lower() for alias in results}
        if is_result and not self._is_alias(column) and not column.find_ancestor(exp.AggFunc):
            raise self._refused(
                f"compares {column.name!r} in HAVING, which is a column and a result",
                f"give the result another name than {column.name}",
            )

    def _over_rows(self, columns: Iterable[exp.Column], start: int, end: int) -> str:
        """A part of the text with the names that its columns have among the rows."""
        parts, at = [], start
        for column in sorted(columns, key=_start):
            if self._is_alias(column):
                continue
            place, rest = self._query.names.place_of(column)
            names = column.parts[: len(column.parts) - len(rest)]
            parts.append(f"{self._text[at : _start(column)]}`{self._name_of(*place)}`")
            at = int(names[-1].meta["end"]) + 1
        return "".join([*parts, self._text[at:end]])

    def _refused(self, what: str, remedy: str) -> InvalidDefinition:
        return InvalidDefinition(f"view {self._query.name!r} {what}", remedy=remedy, place=f"view {self._query.name}")


def _written(alias: str, column: str) -> str:
    return f"`{alias}`.`{column}`" if alias else f"`{column}`"


def _short(expression: str) -> str:
    return "_".join(re.findall(r"\w+", expression)).lower()


def _columns(part: exp.Expr) -> Sequence[exp.Column]:
    return list(part.find_all(exp.Column))


def _start(column: exp.Column) -> int:
    return int(column.parts[0].meta["start"])
