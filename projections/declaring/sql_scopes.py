"""Which names of a query are tables, and which stand for a query of WITH: by the scopes that Spark gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import expressions as exp

_Scope = Mapping[str, exp.CTE]


class Scopes:
    """The names in every FROM and JOIN of a query, its subqueries included."""

    def __init__(self, query: exp.Expr) -> None:
        self._named = list(_resolved(query))

    @property
    def tables(self) -> list[exp.Table]:
        """The names that stand for a table, in the order of the text."""
        return sorted((node for node, meant in self._named if meant is None), key=start)

    @property
    def queries(self) -> frozenset[str]:
        """The names, in lower case, that stand for a query of WITH somewhere."""
        return frozenset(meant.alias.lower() for _, meant in self._named if meant is not None)

    def repeating(self, table: exp.Table) -> str | None:
        """The query of WITH that reads a table several times because it is read several times or by itself."""
        passed: list[exp.Expr] = []
        place: exp.Expr = table
        while query := place.find_ancestor(exp.CTE):
            readers = self._readers(query)
            if len(readers) > 1 or any(query is one for one in passed):
                return query.alias
            if not readers:
                return None
            passed.append(query)
            place = readers[0]
        return None

    def root(self, query: exp.Expr) -> exp.Table | None:
        """The first table of the outermost FROM, inside its first subquery or query of WITH where it has no other."""
        match query:
            case exp.Table():
                return self._root_of_name(query)
            case exp.Subquery():
                return self.root(query.this)
            case exp.SetOperation():
                return self.root(query.left) or self.root(query.right)
            case exp.Select():
                return next((root for source in sources(query) if (root := self.root(source.this))), None)
        return None

    def _root_of_name(self, name: exp.Table) -> exp.Table | None:
        meant = next((meant for node, meant in self._named if node is name), name)
        if isinstance(meant, exp.CTE):
            return None if _is_within(name, meant) else self.root(meant.this)
        return name if is_name(name) else None

    def _readers(self, query: exp.Expr) -> list[exp.Table]:
        return [node for node, meant in self._named if meant is query]


def is_name(table: exp.Table) -> bool:
    """Whether a source of a query is named, instead of being a table function."""
    return isinstance(table.this, exp.Identifier)


def start(table: exp.Table) -> int:
    """Where the name of a table begins in the text, or -1 if sqlglot made it up."""
    return int(table.this.meta.get("start", -1))


def _resolved(query: exp.Expr) -> Iterator[tuple[exp.Table, exp.CTE | None]]:
    """Each name with the query of WITH that it means, None for a table.

    A query of WITH is seen by those after it and by the query below, and by itself only if it is recursive. Names are
    the same in any case.
    """
    left: list[tuple[exp.Expr, _Scope]] = [(query, {})]
    while left:
        node, scope = left.pop()
        if isinstance(node, exp.Table) and is_name(node):
            yield node, None if node.db else scope.get(node.name.lower())
        given = node.args.get("with_")
        for cte in given.expressions if isinstance(given, exp.With) else ():
            after = {**scope, cte.alias.lower(): cte}
            left.append((cte.this, after if cte.parent.recursive else scope))
            scope = after
        left += [(child, scope) for child in node.iter_expressions() if not isinstance(child, exp.With | exp.Hint)]


def sources(query: exp.Query) -> list[exp.Expr]:
    """The FROM and the joins of a query."""
    first = query.args.get("from_")
    return [*([first] if first else []), *query.args.get("joins", [])]


def _is_within(node: exp.Expr, outer: exp.Expr) -> bool:
    place: exp.Expr | None = node
    while place is not None and place is not outer:
        place = place.parent
    return place is not None
