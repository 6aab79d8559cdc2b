"""What the columns of a query mean: of which table one is, and which names are columns at all, in any letter case."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import expressions as exp

from projections.declaring.any_table import AnyTable
from projections.declaring.sql_scopes import sources
from projections.declaring.views import Input

Place = tuple[str, str]
"""What a query calls a table, or nothing if that is not known, and a column of it. Both are in lower case."""


class Names:
    """The columns that a query names outside of its subqueries."""

    def __init__(self, select: exp.Select, roles: Mapping[str, Input]) -> None:
        self._roles = roles
        tables = [table for table in select.find_all(exp.Table) if table.parent_select is select]
        relations = [*tables, *(source.this for source in sources(select) if source.this not in tables)]
        self._aliases = {str(source.alias_or_name).lower() for source in relations}
        self._known = {t.alias_or_name.lower(): self._columns_of(t) for t in tables}
        self._are_known = all(self._known.values()) and all(isinstance(s.this, exp.Table) for s in sources(select))
        joins = list(select.find_all(exp.Join))
        self._shared = {name.name.lower() for join in joins for name in join.args.get("using") or ()}
        self._are_known &= not any(join.method == "NATURAL" for join in joins)

    def _columns_of(self, source: exp.Table) -> frozenset[str]:
        """The columns of a source of rows in lower case, or none if they are not known."""
        alias, table = source.args.get("alias"), self._roles.get(source.meta.get("role", ""))
        if not isinstance(table, AnyTable) or source.args.get("pivots") or (alias and alias.columns):
            return frozenset()
        return frozenset(column.lower() for column in table.columns)

    def place_of(self, column: exp.Column) -> tuple[Place, list[str]]:
        """Where a column is from, and the fields of its record that are named behind it."""
        parts = [part.name.lower() for part in column.parts]
        if len(parts) > 1 and parts[0] in self._aliases:
            return (parts[0], parts[1]), parts[2:]
        return (self._owner(parts[0]), parts[0]), parts[1:]

    def _owner(self, name: str) -> str:
        """The only table that has a column of this name, where the columns of all are known."""
        owners = [alias for alias, columns in self._known.items() if name in columns]
        return owners[0] if self._are_known and len(owners) == 1 and name not in self._shared else ""
