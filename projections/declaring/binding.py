"""From what a user wrote of a view to the view: parameters become tables, columns become references, all checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from projections.declaring.any_table import AnyTable, require_flat
from projections.declaring.columns import ColumnType
from projections.declaring.naming import checked_identifier
from projections.declaring.timing.promises import InWindows, Reach
from projections.declaring.view_topics import FinalResults, ViewTopic, checked_lake
from projections.declaring.views import Columns, Input, Planned, Reference, View
from projections.errors import InvalidDefinition


def bind(
    name: str,
    function: Callable[..., Any],
    tables: Mapping[str, Input],
    *,
    key: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    topic: str | ViewTopic | None = None,
    lake: str | None = None,
    **looks: FinalResults | Reach | InWindows | None,
) -> View:
    """The view of a function that takes the given tables; InvalidDefinition for what cannot work.

    ``key`` has what distinguishes rows of a partition, the whole key without one, or nothing where the plan shows it.
    ``looks`` are the fields ``final``, ``reach`` and ``windows`` of the view.
    """
    whole = (*by, *(column for column in key if column not in by))
    if len(set(whole)) < len(whole):
        raise InvalidDefinition(f"view {name!r} has a key column twice", remedy="name each column once")
    if not getattr(function, "takes_versions", False):
        _require_current(name, tables, by)
    declared = () if by else Planned(() if len(tables) == 1 else None)
    filled: dict[str, Any] = {"topic": ViewTopic.of(topic), "lake": checked_lake(lake), **looks}
    view = View(name, whole, tables, declared, function, by=by, **filled)
    if by and view.columns_are_known:
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


def _require_current(view: str, tables: Mapping[str, Input], by: Columns) -> None:
    """Versions are looked up by join_versions; as rows they have their times in a history alone."""
    root = next(iter(tables))
    for name, table in tables.items():
        if table.holds_versions and (by or name == root):
            role = f"partitions {name!r}" if by else f"has the root {name!r}"
            raise InvalidDefinition(
                f"view {view!r} {role}, which holds the versions of a table",
                remedy=f"take their history instead, history('{name}_history', {name}), or look versions up from a"
                " stream, the first parameter of a view with a key",
            )


def check(view: View) -> None:
    """Check the columns of a view whose tables are all known; InvalidDefinition."""
    for reference in view.references:
        _check_reference(view, reference)
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
            raise InvalidDefinition(
                f"view {view.name!r} takes rows of one {column!r} at a time, and {name!r} has no such column",
                remedy="give it one in a view of its own, by a join along its foreign key, and take that view here."
                f" Its columns are: {', '.join(table.columns)}",
                place=place,
                code="unknown-column",
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
