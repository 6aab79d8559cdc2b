"""What a query says of its tables: the parameter that each becomes, the columns it groups by, the unmatched sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlglot import expressions as exp

from projections.declaring.any_table import AnyTable
from projections.declaring.naming import checked_identifier
from projections.declaring.sql_names import Names
from projections.declaring.sql_scopes import Scopes, sources, start
from projections.declaring.sql_text import DIALECT, SqlText
from projections.declaring.views import Input, Target
from projections.errors import InvalidDefinition

# Of a table in a query: its name, and what is joined with or made of its whole rows.
_PARTS = frozenset({"this", "db", "catalog", "alias", "pivots", "joins", "laterals"})


@dataclass(frozen=True)
class _Side:
    """A table of the query's FROM or JOIN: what the query calls it, and the parameter it becomes."""

    alias: str
    role: str


class Query:
    """What a query says of its tables. Each of its tables knows in ``meta`` which parameter it is."""

    def __init__(
        self,
        name: str,
        text: SqlText,
        tables: Mapping[str, Input],
        roots: Collection[str] = (),
        *,
        by_place: bool = True,
    ) -> None:
        self._by_place = by_place
        self.name = name
        self.roots = roots
        self.text = text
        self.select = text.select
        self.scopes = Scopes(text.select)
        if by_place and isinstance(text.select, exp.SetOperation):
            raise self._refused("is several SELECTs", "leave all but tables and topic out")
        self.roles = self._find_roles(tables)
        text.require_whole(name)

    @property
    def groups(self) -> list[exp.Expr]:
        """What GROUP BY names."""
        group = self.select.args.get("group")
        return [part.unnest() for part in group.expressions] if group else []

    @property
    def is_distinct(self) -> bool:
        """Whether it returns different rows, and not those of its first table under their key."""
        keys = {(alias, column.lower()) for alias, column in self.row_key()}
        columns = [part for part in self.select.expressions if isinstance(part, exp.Column)]
        return bool(self.select.args.get("distinct")) and not keys <= {self.names.place_of(c)[0] for c in columns}

    @property
    def is_grouped(self) -> bool:
        """Whether a row of it stands for a group of rows."""
        return bool(self.groups) or self.is_distinct

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns by which it groups, if all its tables have them, are joined by them, and they are returned."""
        parts = self.groups or (self.select.expressions if self.is_distinct else [])
        names = {part.name.lower() for part in parts}
        is_plain = all(self._is_shown(part) for part in parts) and (len(self.roles) == 1 or self._is_within(names))
        return tuple(_spelled(self._root, part.name) for part in parts) if is_plain else ()

    def _is_within(self, names: set[str]) -> bool:
        """Whether a query of several tables brings together only rows of one partition."""
        tables = [table for table in self.roles.values() if isinstance(table, AnyTable)]
        known = all(names <= {column.lower() for column in table.columns} for table in tables)
        joins = list(self.select.find_all(exp.Join))
        return known and len(tables) == len(self.roles) and all(names <= _shared(join) for join in joins)

    def _is_shown(self, part: exp.Expr) -> bool:
        """Whether it is a column of the table, and returned under its name."""
        if not isinstance(part, exp.Column) or self.names.place_of(part)[1]:
            return False
        name, root = part.name.lower(), self._root
        shown = [one for one in self.select.expressions if one.alias_or_name.lower() == name]
        inner = shown[0].unalias() if shown else None
        is_column = isinstance(inner, exp.Column) and inner.name.lower() == name
        return is_column and (not isinstance(root, AnyTable) or name in {column.lower() for column in root.columns})

    @property
    def _root(self) -> Input:
        return next(iter(self.roles.values()))

    @cached_property
    def names(self) -> Names:
        """What its columns mean."""
        assert isinstance(self.select, exp.Select)  # noqa: S101 - several SELECTs are refused above
        return Names(self.select, self.roles)

    def row_key(self) -> Iterator[tuple[str, str]]:
        """The key of its first table: what the query calls the table, and the column."""
        root = self.scopes.root(self.select)
        source = root
        if root is not None and root.parent_select is not self.select:
            source = next((s.this for s in sources(self.select) if self.scopes.root(s.this) is root), None)
        alias = "" if source is None else str(source.alias_or_name).lower()
        yield from ((alias, column) for column in self._root.key)

    def unmatched(self) -> dict[tuple[str, ...], Target]:
        """The tables of right and full joins, by the columns of the result that hold their keys."""
        return {
            tuple(self._selected(join, side, key) for key in self.roles[side.role].key): side.role
            for join, side in (() if self.is_grouped else self._sides())
        }

    def _sides(self) -> Iterator[tuple[exp.Join, _Side]]:
        for join in self.select.find_all(exp.Join):
            if join.side in ("RIGHT", "FULL") and (side := self._preserved(join)).role not in self.roots:
                yield join, side

    def _preserved(self, join: exp.Join) -> _Side:
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
        roles: dict[str, Input] = {}
        given = {name.lower(): name for name in tables}
        often = Counter(table.name.lower() for table in self.scopes.tables)
        for table in self._named(given):
            name = checked_identifier(given[table.name.lower()], what="table")
            role = (
                name
                if often[name] == 1 or not self._by_place
                else checked_identifier(table.alias_or_name.lower(), what="table")
            )
            self._require_readable(table, role, roles)
            roles[role] = tables[name]
            table.meta["role"] = role
        return roles

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
        if root is None and self._by_place:
            raise self._refused("has no table in its FROM", "begin FROM with the table whose key is the view's")
        return sorted(named, key=lambda table: (table is not root, start(table)))

    def _require_readable(self, table: exp.Table, role: str, others: Collection[str]) -> None:
        """Refuse a place that is no parameter of its own, or whose name cannot be replaced."""
        if role in others and self._by_place:
            raise self._refused(
                f"reads two tables as {role!r}",
                f"give each place an alias of its own, which names its parameter: {table.name} AS other_{table.name}",
            )
        if self._by_place and (repeating := self.scopes.repeating(table)):
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

    def _selected(self, join: exp.Join, side: _Side, key: str) -> str:
        """The name under which the key of a side is returned."""
        using = {name.name.lower() for name in join.args.get("using") or () if join.side == "RIGHT"}
        for part in self.select.expressions:
            column = part.unalias()
            if not isinstance(column, exp.Column):
                continue
            (alias, name), rest = self.names.place_of(column)
            if name == key.lower() and not rest and (alias == side.alias or (not alias and name in using)):
                return str(part.alias_or_name)
        raise self._refused(
            f"keeps rows of {side.alias!r} that nothing refers to, and does not select {side.alias}.{key}",
            f"select it under a name of its own: {side.alias}.{key} AS {side.role}_{key}",
        )

    def _refused(self, what: str, remedy: str) -> InvalidDefinition:
        return InvalidDefinition(f"view {self.name!r} {what}", remedy=remedy, place=f"view {self.name}")


def _shared(join: exp.Join) -> set[str]:
    """The names of columns that a join compares with columns of the same name."""
    on = join.args.get("on")
    equal = [part for part in (on.flatten() if isinstance(on, exp.And) else [on]) if isinstance(part, exp.EQ)]
    named = [(one.left, one.right) for one in equal if all(isinstance(s, exp.Column) for s in (one.left, one.right))]
    same = {a.name.lower() for a, b in named if a.name.lower() == b.name.lower()}
    return same | {name.name.lower() for name in join.args.get("using") or ()}


def _spelled(table: Input, column: str) -> str:
    """The column in the case that its table has it in: Spark takes any."""
    if isinstance(table, AnyTable):
        return next((own for own in table.columns if own.lower() == column.lower()), column)
    # A view's columns are not known yet; what is all in capitals is written as SQL often is.
    return column.lower() if column.isupper() else column


def _is_no_name(source: exp.Expr) -> bool:
    """Whether a table is read by a name that is computed, or as a stream."""
    is_computed = isinstance(source.this, exp.Anonymous) and source.this.name.upper() == "IDENTIFIER"
    return is_computed or isinstance(source, exp.Stream)


def _full_name(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)
