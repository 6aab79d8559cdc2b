"""From what a user wrote of a view to the view: parameters become tables, columns become references, all checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from projections.declaring.any_table import AnyTable, require_flat
from projections.declaring.columns import ColumnType
from projections.declaring.naming import checked_columns, checked_identifier
from projections.declaring.views import (
    Declaration,
    InferredReferences,
    Input,
    Planned,
    Reference,
    Target,
    Unmatched,
    View,
)
from projections.errors import InvalidDefinition, UnknownColumn


def bind(declared: Declaration, function: Callable[..., Any], tables: Mapping[str, Input]) -> View:
    """The view of a function that takes the given tables; InvalidDefinition or UnknownColumn for what cannot work."""
    name = declared.name
    if not getattr(function, "takes_versions", False):
        _require_current(declared, tables)
    if declared.by:
        _require_partitions(declared, tables)
        view = View(
            name, declared.key, tables, (), function, by=declared.by, topic=declared.topic, final=declared.final
        )
    else:
        references = _references(declared, tables)
        if not isinstance(references, Planned):  # or the plan shows whose key it is
            _require_root_key(declared, tables)
        sides = tuple(_side(c, target, tables, references, view=name) for c, target in declared.unmatched.items())
        key = (*declared.key, *(column for side in sides for column in side.columns))
        peers = _peers(declared, tables, references)
        view = View(
            name, key, tables, references, function, sides, topic=declared.topic, peers=peers, final=declared.final
        )
        if view.references_are_known:
            require_all_reached(view)
    view = replace(view, topic=declared.topic, lake=declared.lake, final=declared.final, reach=declared.reach)
    if len(set(view.key)) < len(view.key):
        raise InvalidDefinition(f"view {name!r} has a key column twice", remedy="give each side a name of its own")
    if view.columns_are_known and view.references_are_known:
        check(view)
    return view


def tables_of(function: Callable[..., Any], explicit: Mapping[str, Input]) -> dict[str, Input]:
    """The tables and views that a function's parameters name, in its module or explicitly."""
    scope = {**inspect.getclosurevars(function).nonlocals, **getattr(function, "__globals__", {}), **explicit}
    bound: dict[str, Input] = {}
    for parameter in inspect.signature(function).parameters:
        table = scope.get(parameter)
        if not isinstance(table, AnyTable | View):
            raise InvalidDefinition(
                f"view {function.__name__!r} takes {parameter!r}, and no table of that name is in its module",
                remedy=f"define {parameter} = Table.from_events(…), or another of its kind, or pass tables={{…}}",
            )
        bound[checked_identifier(parameter, what="table")] = table
    if not bound:
        raise InvalidDefinition(
            f"view {function.__name__!r} takes no table", remedy="name its tables as parameters, the root first"
        )
    return bound


def _require_current(declared: Declaration, tables: Mapping[str, Input]) -> None:
    """Versions are looked up by as_of; as rows they have their times in a history alone."""
    root = next(iter(tables))
    for name, table in tables.items():
        if _holds_versions(table) and (declared.by or name == root):
            role = f"partitions {name!r}" if declared.by else f"has the root {name!r}"
            raise InvalidDefinition(
                f"view {declared.name!r} {role}, which holds the versions of a table",
                remedy=f"take their history instead, history('{name}_history', {name}), or look versions up from a"
                " stream, the first parameter of a view with references",
            )


def _holds_versions(table: Input) -> bool:
    return isinstance(table, AnyTable) and table.holds_versions


def _require_partitions(declared: Declaration, tables: Mapping[str, Input]) -> None:
    if declared.references or declared.unmatched or declared.roots:
        raise InvalidDefinition(
            f"view {declared.name!r} names columns of partitions, and references, unmatched or roots too",
            remedy="join along foreign keys in a view of its own, which this one reads",
        )


def _references(declared: Declaration, tables: Mapping[str, Input]) -> tuple[Reference, ...] | InferredReferences:
    """The declared references. Without any, they are inferred where there is a table to look up."""
    if declared.references is None and len(tables) > len(declared.roots):
        return Planned(() if len(tables) == 1 else None)
    return tuple(_reference(c, target, tables, view=declared.name) for c, target in declared.references or ())


def _require_root_key(declared: Declaration, tables: Mapping[str, Input]) -> None:
    root, table = next(iter(tables.items()))
    if table.key != declared.key:
        raise InvalidDefinition(
            f"view {declared.name!r} has key {', '.join(declared.key)!r}, its root table {root!r} has key"
            f" {', '.join(table.key)}",
            remedy="a view joined by foreign keys has the key of its first table. One row a group is by='…'. A query of"
            " any other key is a sql_view, which finds it",
        )


def _peers(
    declared: Declaration, tables: Mapping[str, Input], references: tuple[Reference, ...] | InferredReferences
) -> tuple[str, ...]:
    """The roots after the first."""
    roots = [_role(root, tables, spec="roots", view=declared.name) for root in declared.roots]
    if not roots:
        return ()
    place, first = f"view {declared.name}", next(iter(tables))
    if first not in roots or len(set(roots)) < max(len(roots), 2):
        raise InvalidDefinition(
            f"the roots of view {declared.name!r} are {', '.join(roots)}",
            remedy=f"name two or more, each once, and {first!r} among them: it is the first parameter",
            place=place,
        )
    if declared.unmatched:
        raise InvalidDefinition(
            f"view {declared.name!r} has several roots and keeps unmatched rows",
            remedy="join the roots in a view of their own, which the one with unmatched rows reads",
            place=place,
        )
    known = () if isinstance(references, InferredReferences) else references
    for name in roots:
        _require_root(name, tables[name], known, key=declared.key, place=place)
    return tuple(name for name in tables if name in roots and name != first)


def _require_root(
    name: str, table: Input, references: tuple[Reference, ...], *, key: tuple[str, ...], place: str
) -> None:
    if _holds_versions(table) or (isinstance(table, AnyTable) and table.has_event_time) or table.key_may_be_null:
        raise InvalidDefinition(
            f"root {name!r} is no table of current rows under a whole key",
            remedy="the roots of a view are tables, or views whose key is never null",
            place=place,
        )
    if len(table.key) != len(key):
        raise InvalidDefinition(
            f"root {name!r} has key {', '.join(table.key)}, and the view {', '.join(key)}",
            remedy="roots have one key, column by column",
            place=place,
        )
    if pointing := [str(reference) for reference in references if reference.target == name]:
        raise InvalidDefinition(
            f"{pointing[0]} points to a root",
            remedy="rows that are looked up are another parameter: take the table a second time under another name",
            place=place,
        )


def _reference(columns: tuple[str, ...], target: Target, tables: Mapping[str, Input], *, view: str) -> Reference:
    spec = ", ".join(columns)
    sources = {column.rpartition(".")[0] or next(iter(tables)) for column in columns}
    source = sources.pop()
    if sources or source not in tables:
        raise InvalidDefinition(
            f"reference {spec!r} starts at {'two tables' if sources else 'an unknown table'}",
            remedy=f"write column, or table.column of one of: {', '.join(tables)}",
            place=f"view {view}",
        )
    name = _role(target, tables, spec=spec, view=view)
    reference = Reference(source, tuple(column.rpartition(".")[2] for column in columns), name)
    if len(reference.columns) != len(tables[name].key):
        raise InvalidDefinition(
            f"{spec!r} is {len(columns)} column(s), and the key of {name!r} is {', '.join(tables[name].key)}",
            remedy="give as many columns, in the order of that key: references={('a', 'b'): table}",
            place=f"view {view}",
        )
    return reference


def _role(target: Target, tables: Mapping[str, Input], *, spec: str, view: str) -> str:
    """The parameter that stands for a table."""
    names = [n for n, table in tables.items() if table is target or n == target]
    if len(names) == 1:
        return names[0]
    if names:
        raise InvalidDefinition(
            f"view {view!r} takes the table that {spec!r} refers to as {' and as '.join(names)}",
            remedy=f"say which one by its name: {names[-1]!r}",
        )
    raise InvalidDefinition(
        f"view {view!r} refers by {spec!r} to a table it does not take", remedy="add it as a parameter"
    )


def _side(
    columns: tuple[str, ...],
    target: Target,
    tables: Mapping[str, Input],
    references: tuple[Reference, ...] | InferredReferences,
    *,
    view: str,
) -> Unmatched:
    spec = ", ".join(checked_columns(columns, what="view column"))
    name = _role(target, tables, spec=spec, view=view)
    table = tables[name]
    if isinstance(references, InferredReferences):
        reached = set(tables)
    else:
        reached = {reference.target for reference in references}
    if name not in reached or _holds_versions(table):
        raise InvalidDefinition(
            f"view {view!r} keeps unmatched rows of {name!r}, to which no foreign key of current rows leads",
            remedy="unmatched names tables that references point to",
        )
    for side in (next(iter(tables)), name):
        if tables[side].key_may_be_null:
            raise InvalidDefinition(
                f"view {view!r} keeps unmatched rows in addition to {side!r}, a view whose key may be null already",
                remedy="a missing side could not be distinguished from a null: join the tables themselves",
            )
    if len(columns) != len(table.key):
        raise InvalidDefinition(
            f"view {view!r} keeps unmatched rows of {name!r} under {spec!r}, and its key is {', '.join(table.key)}",
            remedy="give the view one column for each column of that key",
        )
    return Unmatched(columns, name)


def require_all_reached(view: View) -> None:
    """Require a reference to each table of a view except its roots; InvalidDefinition."""
    reached = set(view.roots)
    for _ in view.references:
        reached |= {r.target for r in view.references if r.source in reached}
    if missing := [table for table in view.tables if table not in reached]:
        raise InvalidDefinition(
            f"no reference of view {view.name!r} reaches table {missing[0]!r}",
            remedy=_to_reach(view, missing[0]),
        )


def _to_reach(view: View, table: str) -> str:
    if isinstance(view.declared, tuple) and view.declared:
        return f"leave references out: the joins show them, or add the foreign key, {{'column': {table!r}}}"
    return f"join it by its whole key, {', '.join(view.tables[table].key)}, or leave the parameter out"


def check(view: View) -> None:
    """Check the columns of a view whose tables are all known; InvalidDefinition or UnknownColumn."""
    for reference in view.references:
        _check_reference(view, reference)
    for name in view.peers:
        _check_shared_key(view.table(view.root), view.table(name), place=f"view {view.name}, root {name}")
    for name in view.tables if view.by else ():
        _check_partition(view, name)


def _check_partition(view: View, name: str) -> None:
    table, root, place = view.table(name), view.table(view.root), f"view {view.name}, {name}"
    for column, of_root in zip(view.root_key_in(name), view.root_key_in(view.root), strict=True):
        if column in table.personal:
            raise InvalidDefinition(
                f"view {view.name!r} groups by {column!r}, which is personal, and sealed values match nothing",
                remedy="group by a clear column",
            )
        if column not in table.columns:
            raise UnknownColumn(
                f"view {view.name!r} takes rows of one {column!r} at a time, and {name!r} has no such column",
                remedy="give it one in a view of its own, by a join along its foreign key, and take that view here."
                f" Its columns are: {', '.join(table.columns)}",
                place=place,
            )
        kind = table.columns[column]
        require_flat(column, kind, place=place)
        if may_not_match(kind, root.columns[of_root]):
            raise InvalidDefinition(
                f"{column!r} is {kind.ddl} here, and {root.columns[of_root].ddl} in {view.root}",
                remedy="declare both with one type: rows that belong together would not meet",
                place=place,
            )


def _check_reference(view: View, reference: Reference) -> None:
    source, target = view.table(reference.source), view.table(reference.target)
    place = f"{view.name}: {reference}"
    for column, key in zip(reference.columns, target.key, strict=True):
        _require_same_type(source, column, target, key, place=place)
    _require_time(source, target, place=place)


def _require_same_type(source: AnyTable, column: str, target: AnyTable, key: str, *, place: str) -> None:
    ours, theirs = source.require(column), target.columns[key]
    if column in source.personal:
        raise InvalidDefinition(
            "the foreign key is personal, and sealed values match nothing", remedy="refer by a clear one", place=place
        )
    require_flat(column, ours, place=place)
    if may_not_match(ours, theirs):
        raise InvalidDefinition(
            f"the foreign key is {ours.ddl}, the key it points to is {theirs.ddl}",
            remedy="declare both with one type: rows that belong together would not match",
            place=place,
        )


def may_not_match(ours: ColumnType, theirs: ColumnType) -> bool:
    """Whether values that are equal may be kept differently: a decimal is text in SQLite, with all its digits."""
    return (ours.kind, ours.scale) != (theirs.kind, theirs.scale) and not {ours.kind, theirs.kind} <= {"int", "long"}


def _check_shared_key(root: AnyTable, peer: AnyTable, *, place: str) -> None:
    for column, shared in zip(root.key, peer.key, strict=True):
        if may_not_match(root.columns[column], peer.columns[shared]):
            raise InvalidDefinition(
                f"key {shared!r} is {peer.columns[shared].ddl}, and that of the first root {root.columns[column].ddl}",
                remedy="declare both with one type: rows that belong together would not meet",
                place=place,
            )


def _require_time(source: AnyTable, target: AnyTable, *, place: str) -> None:
    """Versions are found by an event time, and lead no further: their own references would need one too."""
    if source.holds_versions:
        raise InvalidDefinition(
            "a reference starts at the versions of a table",
            remedy="refer from the stream, or use the table's current rows (Table.from_changelog) with its versions",
            place=place,
        )
    if target.holds_versions and len(target.key) > 1:
        raise InvalidDefinition(
            "versions are looked up by a key of one column", remedy="refer to its current rows", place=place
        )
    if target.holds_versions and not source.has_event_time:
        raise InvalidDefinition(
            "versions are looked up from a table whose rows have no event time",
            remedy="declare the root with Stream.from_events(…), or refer to Table.from_changelog(…)",
            place=place,
        )
