"""Views written in SQL: the tables, the key and the foreign keys are read from the text.

The text is Spark's SQL. It is parsed by sqlglot (https://github.com/tobymao/sqlglot); what Spark then runs is the same
query over the slices or the whole tables, under names of their own.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import ParseError

from projections.declaring.binding import bind
from projections.errors import InvalidDefinition
from projections.outputs.view_topics import ViewTopic
from projections.tables import checked_identifier
from projections.views import Columns, Declaration, Input, Pointer, Target, Targets, View, as_columns, pointers

_DIALECT = "spark"


def sql_view(
    name: str,
    text: str,
    *,
    tables: Mapping[str, Input],
    references: Mapping[Columns, Targets] | None = None,
    unmatched: Mapping[Columns, Target] | None = None,
    roots: Sequence[str] = (),
    topic: str | ViewTopic | None = None,
) -> View:
    """Declare a view by a query over ``tables``, which are named in it as they are here.

    The first table is the root. Foreign keys are the equalities of ON that hold another table's whole key; a table of a
    RIGHT or FULL JOIN stays unmatched under the columns of its key, which must be selected; columns of GROUP BY group
    the only table's rows. Where tables stand in a subquery, give ``references`` and ``unmatched`` as `view` takes them.
    ``roots`` names tables of one key: they may be joined by it in any way, USING included, and a key has a row where
    any of them has one. ``topic`` is where the view's rows are published too.

    Raises InvalidDefinition or UnknownColumn.
    """
    query = _Query(checked_identifier(name, what="view"), _parsed(name, text), tables, frozenset(roots))
    function = SqlFunction(query.select, tuple(query.roles))
    topics, given = ViewTopic.of(topic), tuple(roots)
    if query.groups:
        declared = Declaration(name, query.groups, (), {}, grouped=True, roots=given, topic=topics)
    else:
        found = query.references() if references is None else pointers(references)
        sides = query.unmatched() if unmatched is None else {as_columns(c): t for c, t in unmatched.items()}
        root = next(iter(query.roles.values()))
        declared = Declaration(name, root.key, found, sides, grouped=False, roots=given, topic=topics)
    return bind(declared, function, query.roles)


class SqlFunction:
    """A query as the function of a view: its arguments are DataFrames, in the order of ``roles``."""

    def __init__(self, select: exp.Expression, roles: tuple[str, ...]) -> None:
        self._select = select
        self._roles = roles
        self.signature = select.sql(_DIALECT)
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(role, inspect.Parameter.POSITIONAL_OR_KEYWORD) for role in roles]
        )

    def __call__(self, *frames: Any) -> Any:
        """The query's result, as a DataFrame."""
        own = {role: f"factfold_{uuid.uuid4().hex}_{role}" for role in self._roles}
        for role, frame in zip(self._roles, frames, strict=True):
            frame.createOrReplaceTempView(own[role])
        try:
            return frames[0].sparkSession.sql(self._renamed(own).sql(_DIALECT))
        finally:
            for name in own.values():
                frames[0].sparkSession.catalog.dropTempView(name)

    def _renamed(self, own: Mapping[str, str]) -> exp.Expr:
        """The query over other names of the same tables, which go on being called what they were."""

        def renamed(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Table) or node.meta.get("role") not in own:
                return node
            return exp.alias_(exp.to_table(own[node.meta["role"]]), node.alias_or_name, table=True)

        return self._select.copy().transform(renamed)


@dataclass(frozen=True)
class _Side:
    """A table of the query's FROM or JOIN: what the query calls it, and the parameter it becomes."""

    alias: str
    role: str
    kept: bool


class _Query:
    """What a query says of its tables; each of its tables knows in ``meta`` which parameter it is."""

    def __init__(self, name: str, select: exp.Select, tables: Mapping[str, Input], roots: Collection[str] = ()) -> None:
        self.name = name
        self.roots = roots
        self.select = select
        self.roles = self._find_roles(tables)
        self.sides = {side.alias: side for side in self._find_sides()}

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns of GROUP BY."""
        group = self.select.args.get("group")
        found = group.expressions if group else []
        for part in found:
            if not isinstance(part, exp.Column):
                raise self._refused(
                    f"groups by {part.sql(_DIALECT)!r}", "group by a column; compute it in a view that this one reads"
                )
        return tuple(part.name for part in found)

    def references(self) -> tuple[Pointer, ...]:
        """The foreign keys among the equalities of its joins."""
        found: list[Pointer] = []
        reached = [next(iter(self.sides))] if self.sides else []
        for join in self.select.args.get("joins", []):
            table = join.this.alias_or_name
            if table not in self.sides:
                raise self._refused("joins a subquery", "give its foreign keys: sql_view(…, references={…})")
            if self.sides[table].role not in self.roots:
                found.append(self._reference(join, table, reached))
            reached.append(table)
        return tuple(found)

    def unmatched(self) -> dict[tuple[str, ...], Target]:
        """The tables of right and full joins, by the columns of the result that hold their keys."""
        return {
            tuple(self._selected(side, key) for key in self.roles[side.role].key): side.role
            for side in self.sides.values()
            if side.kept and side.role not in self.roots
        }

    def _find_roles(self, tables: Mapping[str, Input]) -> dict[str, Input]:
        """A parameter a table; one that stands in the query twice is called by its two aliases."""
        found: dict[str, Input] = {}
        named = [node for node in self.select.find_all(exp.Table, bfs=False) if node.name in tables]
        unknown = sorted({t.name for t in self.select.find_all(exp.Table)} - tables.keys() - self._inner_names())
        if unknown or not named:
            raise self._refused(
                f"reads {', '.join(unknown) or 'no table'}", f"name its tables as in tables={{…}}: {', '.join(tables)}"
            )
        for node in named:
            once = sum(other.name == node.name for other in named) == 1
            role = node.name if once else node.alias_or_name
            found[checked_identifier(role, what="table")] = tables[node.name]
            node.meta["role"] = role
        return found

    def _inner_names(self) -> set[str]:
        return {cte.alias for cte in self.select.find_all(exp.CTE)}

    def _find_sides(self) -> Iterator[_Side]:
        first = self.select.args.get("from_") or self.select.args.get("from")
        tables = [(first.this, "")] if first else []
        tables += [(join.this, join.side) for join in self.select.args.get("joins", [])]
        for node, side in tables:
            if isinstance(node, exp.Table) and "role" in node.meta:
                yield _Side(node.alias_or_name, node.meta["role"], side in ("RIGHT", "FULL"))

    def _reference(self, join: exp.Join, table: str, reached: list[str]) -> Pointer:
        """The foreign key along which a join leads to its table."""
        target = self.sides[table].role
        for source in reached:
            columns = self._pointers(join, source, table)
            if set(self.roles[target].key) <= columns.keys():
                role = self.sides[source].role
                return tuple(f"{role}.{columns[key]}" for key in self.roles[target].key), target
        raise self._refused(
            f"joins {table!r} by {join.args['on'].sql(_DIALECT) if join.args.get('on') else 'no condition of ON'}",
            f"join by its whole key, {', '.join(self.roles[target].key)}, with each column written as table.column",
        )

    def _pointers(self, join: exp.Join, source: str, table: str) -> dict[str, str]:
        """By column of the joined table, the column of the source that equals it."""
        condition = join.args.get("on")
        found: dict[str, str] = {}
        for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
            sides = (part.left, part.right) if isinstance(part, exp.EQ) else ()
            named = {side.table: side.name for side in sides if isinstance(side, exp.Column)}
            if named.keys() == {source, table}:
                found[named[table]] = named[source]
        return found

    def _selected(self, side: _Side, key: str) -> str:
        for part in self.select.expressions:
            column = part.unalias()
            if isinstance(column, exp.Column) and (column.table, column.name) == (side.alias, key):
                return str(part.alias_or_name)
        raise self._refused(
            f"keeps rows of {side.alias!r} that nothing refers to, and does not select {side.alias}.{key}",
            f"select it under a name of its own: {side.alias}.{key} AS {side.role}_{key}",
        )

    def _refused(self, what: str, remedy: str) -> InvalidDefinition:
        return InvalidDefinition(f"view {self.name!r} {what}", remedy=remedy, place=f"view {self.name}")


def _parsed(name: str, text: str) -> exp.Select:
    try:
        found = sqlglot.parse_one(text, read=_DIALECT)
    except ParseError as error:
        cause = error.errors[0]["description"] if error.errors else str(error)
        raise InvalidDefinition(
            f"the SQL of view {name!r} cannot be read: {cause}", remedy="write one SELECT of Spark's SQL", place=name
        ) from error
    if isinstance(found, exp.Select):
        return found
    raise InvalidDefinition(
        f"the SQL of view {name!r} is no SELECT", remedy="write one SELECT of Spark's SQL", place=name
    )
