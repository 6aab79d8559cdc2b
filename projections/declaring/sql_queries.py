"""The names in a query: which are tables, and which stand for a query of WITH, by the scopes that Spark gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import expressions as exp

from projections.declaring.naming import checked_identifier
from projections.declaring.sql_text import DIALECT, SqlText, start
from projections.declaring.views import Input
from projections.errors import InvalidDefinition

# Of a table in a query: its name, and what is joined with or made of its whole rows.
_PARTS = frozenset({"this", "db", "catalog", "alias", "pivots", "joins", "laterals"})
_Scope = Mapping[str, exp.CTE]


class Query:
    """A text with the tables that it reads: each is a parameter, by its name. Raises InvalidDefinition.

    Attributes:
        places: Where the text names tables, in its order.
        queries: The names, in lower case, that stand for a query of WITH somewhere.
        roles: The tables by their parameters, in the order of the text.
    """

    def __init__(self, name: str, text: SqlText, tables: Mapping[str, Input]) -> None:
        named = list(_resolved(text.select))
        self.name, self.text = name, text
        self.places = sorted((node for node, meant in named if meant is None), key=start)
        self.queries = frozenset(meant.alias.lower() for _, meant in named if meant is not None)
        given = {table.lower(): table for table in tables}
        self._require_known(given)
        for place in self.places:
            place.meta["role"] = checked_identifier(given[place.name.lower()], what="table")
            self._require_readable(place)
        self.roles = {place.meta["role"]: tables[place.meta["role"]] for place in self.places}
        text.require_whole(name)

    def over(self, names: Mapping[str, str]) -> str:
        """The text with other names of its tables, by parameter, and otherwise as it was written."""
        return self.text.over(self.places, names)

    def _require_known(self, given: Mapping[str, str]) -> None:
        unknown = {_full_name(place) for place in self.places if place.db or place.name.lower() not in given}
        sources = self.text.select.find_all(exp.Table, exp.Stream)
        unknown |= {source.sql(DIALECT) for source in sources if _is_no_name(source)}
        if unknown or not self.places:
            raise self._refused(
                f"reads {', '.join(sorted(unknown)) or 'no table'}",
                f"name its tables as in tables={{…}}: {', '.join(given.values())}",
            )

    def _require_readable(self, place: exp.Table) -> None:
        """Refuse a place whose name cannot be replaced."""
        if others_than_name := {name for name, value in place.args.items() if value} - _PARTS:
            raise self._refused(
                f"reads {place.name!r} with {', '.join(sorted(others_than_name))}",
                "name the table alone, and choose its rows in WHERE",
            )
        if self.text.written(place).lower() != place.name.lower():
            raise self._refused(
                f"names {place.name!r} where it cannot be replaced", "name it in FROM or JOIN of a plain SELECT"
            )

    def _refused(self, what: str, remedy: str) -> InvalidDefinition:
        return InvalidDefinition(f"view {self.name!r} {what}", remedy=remedy, place=f"view {self.name}")


def _resolved(query: exp.Expr) -> Iterator[tuple[exp.Table, exp.CTE | None]]:
    """Each name with the query of WITH that it means, None for a table.

    A query of WITH is seen by those after it and by the query below, and by itself only if it is recursive. Names are
    the same in any case.
    """
    left: list[tuple[exp.Expr, _Scope]] = [(query, {})]
    while left:
        node, scope = left.pop()
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):  # and no table function
            yield node, None if node.db else scope.get(node.name.lower())
        given = node.args.get("with_")
        for cte in given.expressions if isinstance(given, exp.With) else ():
            after = {**scope, cte.alias.lower(): cte}
            left.append((cte.this, after if cte.parent.recursive else scope))
            scope = after
        left += [(child, scope) for child in node.iter_expressions() if not isinstance(child, exp.With | exp.Hint)]


def _is_no_name(source: exp.Expr) -> bool:
    """Whether a table is read by a name that is computed, or as a stream."""
    is_computed = isinstance(source.this, exp.Anonymous) and source.this.name.upper() == "IDENTIFIER"
    return is_computed or isinstance(source, exp.Stream)


def _full_name(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)
