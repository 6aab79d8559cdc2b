"""What a query says of its tables: the parameter that each becomes, the columns it groups by, the unmatched sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlglot import expressions as exp

from projections.declaring.naming import checked_identifier
from projections.declaring.sql_scopes import Scopes, start
from projections.declaring.sql_text import DIALECT, SqlText
from projections.errors import InvalidDefinition
from projections.tables import Table
from projections.views import Input, Target

# Of a table in a query: its name, and what is joined with or made of its whole rows.
_PARTS = frozenset({"this", "db", "catalog", "alias", "pivots", "joins", "laterals"})


@dataclass(frozen=True)
class _Side:
    """A table of the query's FROM or JOIN: what the query calls it, and the parameter it becomes."""

    alias: str
    role: str


class Query:
    """What a query says of its tables. Each of its tables knows in ``meta`` which parameter it is."""

    def __init__(self, name: str, text: SqlText, tables: Mapping[str, Input], roots: Collection[str] = ()) -> None:
        self.name = name
        self.roots = roots
        self.text = text
        self.select = text.select
        self.scopes = Scopes(text.select)
        self.roles = self._find_roles(tables)
        text.require_whole(name)

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns of GROUP BY."""
        group = self.select.args.get("group")
        found = group.expressions if group else []
        others = [part for part in found if not isinstance(part, exp.Column)]
        if group and (others or {name for name, value in group.args.items() if value} != {"expressions"}):
            part = others[0] if others else group
            raise self._refused(
                f"groups by {part.sql(DIALECT).strip()!r}",
                "group by a column; compute it in a view that this one reads",
            )
        root = next(iter(self.roles.values()))
        return tuple(_spelled(root, part.name) for part in found)

    def unmatched(self) -> dict[tuple[str, ...], Target]:
        """The tables of right and full joins, by the columns of the result that hold their keys."""
        joins = () if self.groups else self.select.find_all(exp.Join)
        kept = [self._kept(join) for join in joins if join.side in ("RIGHT", "FULL")]
        return {
            tuple(self._selected(side, key) for key in self.roles[side.role].key): side.role
            for side in kept
            if side.role not in self.roots
        }

    def _kept(self, join: exp.Join) -> _Side:
        """The table whose rows a right or full join keeps, where the text shows it."""
        side = self._side(join)
        if side and (join.parent is self.select or side.role in self.roots):
            return side
        raise self._refused(
            f"has a {join.side} JOIN {'of a subquery' if join.parent is self.select else 'in a subquery'}",
            "give the columns of the view that hold its keys: sql_view(…, unmatched={…}), or unmatched={} for none",
        )

    def _find_roles(self, tables: Mapping[str, Input]) -> dict[str, Input]:
        """A parameter for each place that names a table. A table in several places is called by its aliases."""
        found: dict[str, Input] = {}
        given = {name.lower(): name for name in tables}
        often = Counter(table.name.lower() for table in self.scopes.tables)
        for table in self._named(given):
            name = checked_identifier(given[table.name.lower()], what="table")
            role = name if often[name] == 1 else checked_identifier(table.alias_or_name.lower(), what="table")
            self._require_readable(table, role, found)
            found[role] = tables[name]
            table.meta["role"] = role
        return found

    def _named(self, given: Mapping[str, str]) -> list[exp.Table]:
        """The places that name tables, the root first."""
        named = self.scopes.tables
        unknown = {_full_name(table) for table in named if table.db or table.name.lower() not in given}
        unknown |= {
            source.sql(DIALECT) for source in self.select.find_all(exp.Table, exp.Stream) if _is_no_name(source)
        }
        if unknown or not named:
            raise self._refused(
                f"reads {', '.join(sorted(unknown)) or 'no table'}",
                f"name its tables as in tables={{…}}: {', '.join(given.values())}",
            )
        root = self.scopes.root(self.select)
        if root is None:
            raise self._refused("has no table in its FROM", "begin FROM with the table whose key is the view's")
        return sorted(named, key=lambda table: (table is not root, start(table)))

    def _require_readable(self, table: exp.Table, role: str, others: Collection[str]) -> None:
        """Refuse a place that is no parameter of its own, or whose name cannot be replaced."""
        if role in others:
            raise self._refused(
                f"reads two tables as {role!r}",
                f"give each place an alias of its own, which names its parameter: {table.name} AS other_{table.name}",
            )
        if repeating := self.scopes.repeating(table):
            raise self._refused(
                f"reads {table.name!r} more than once, through {repeating!r} of WITH",
                "write the table in each place that reads it, with an alias of its own",
            )
        if others_than_name := {name for name, value in table.args.items() if value} - _PARTS:
            raise self._refused(
                f"reads {table.name!r} with {', '.join(sorted(others_than_name))}",
                "name the table alone, and choose its rows in WHERE",
            )
        if self.text.written(table).lower() != table.name.lower():
            raise self._refused(
                f"names {table.name!r} where it cannot be replaced", "name it in FROM or JOIN of a plain SELECT"
            )

    def _side(self, source: exp.Expr) -> _Side | None:
        """The table of a FROM or JOIN, if its columns are known."""
        table = source.this
        if not isinstance(table, exp.Table) or "role" not in table.meta or table.args.get("pivots"):
            return None
        alias = table.args.get("alias")
        return None if alias and alias.columns else _Side(table.alias_or_name.lower(), table.meta["role"])

    def _selected(self, side: _Side, key: str) -> str:
        for part in self.select.expressions:
            column = part.unalias()
            if _is_column(column) and (column.text("table").lower(), column.name.lower()) == (side.alias, key.lower()):
                return str(part.alias_or_name)
        raise self._refused(
            f"keeps rows of {side.alias!r} that nothing refers to, and does not select {side.alias}.{key}",
            f"select it under a name of its own: {side.alias}.{key} AS {side.role}_{key}",
        )

    def _refused(self, what: str, remedy: str) -> InvalidDefinition:
        return InvalidDefinition(f"view {self.name!r} {what}", remedy=remedy, place=f"view {self.name}")


def _spelled(table: Input, column: str) -> str:
    """The column in the case that its table has it in: Spark takes any."""
    if isinstance(table, Table):
        return next((own for own in table.columns if own.lower() == column.lower()), column)
    # A view's columns are not known yet; what is all in capitals is written as SQL often is.
    return column.lower() if column.isupper() else column


def _is_column(part: exp.Expr) -> bool:
    """Whether a part of a query is ``column`` or ``table.column``, and no field of a record."""
    return isinstance(part, exp.Column) and not part.args.get("db")


def _is_no_name(source: exp.Expr) -> bool:
    """Whether a table is read by a name that is computed, or as a stream."""
    is_computed = isinstance(source.this, exp.Anonymous) and source.this.name.upper() == "IDENTIFIER"
    return is_computed or isinstance(source, exp.Stream)


def _full_name(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)
