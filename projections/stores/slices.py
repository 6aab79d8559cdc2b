"""The rows a view's function needs for what a batch reaches: stored state overlaid with staged changes."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from projections.planning.planner import ViewPlan
from projections.stores import dialects
from projections.stores.affected import not_deleted
from projections.stores.differences import marked
from projections.stores.keys import Key
from projections.stores.layout import RoleLayout, ViewLayout

KeySource = sa.CTE | sa.Table


def cut_slices(connection: sa.Connection, view: ViewLayout, plan: ViewPlan) -> dict[str, int]:
    """Fill ``slice_*``: the affected root rows, or all rows of affected groups, and the rows they point to.

    Returns the number of rows of each slice, by table.
    """
    return {name: _cut(connection, view, plan, name) for name in plan.downwards}


def _cut(connection: sa.Connection, view: ViewLayout, plan: ViewPlan, name: str) -> int:
    role, columns = view.roles[name], list(view.roles[name].table.sliced)
    keys, by = _keys(view, plan, name)
    overlay = sa.union_all(_staged_rows(role, columns, keys, by), _stored_rows(role, columns, keys, by))
    return dialects.counted(connection, sa.insert(role.slice).from_select(columns, overlay))


def _keys(view: ViewLayout, plan: ViewPlan, name: str) -> tuple[KeySource, Key]:
    """Keys of rows that the function needs, each once, and by which columns of the table they are looked up."""
    role = view.roles[name]
    if name in view.definition.roots:
        return _reached(view, role), role.reached_by
    key = role.key
    parts = [
        _pointed(view.roles[reference.source].slice, reference.columns, list(key.columns))
        for reference in plan.references_to(name)
    ]
    return sa.union(*parts).cte("needed_keys"), key


def _reached(view: ViewLayout, role: RoleLayout) -> KeySource:
    """The affected rows or groups; of those whose changes were added up, only the ones that this does not do for."""
    if view.partials is None:
        return role.affected
    named = zip(view.root_key.of(view.result), role.reached_by.columns, strict=True)
    return sa.select(*(column.label(name) for column, name in named)).where(marked(view)).cte("needed_keys")


def _pointed(source: sa.Table, columns: Sequence[str], key: Sequence[str]) -> sa.Select[tuple[object, ...]]:
    pointers = [source.c[c] for c in columns]
    named = (pointer.label(k) for pointer, k in zip(pointers, key, strict=True))
    return sa.select(*named).where(*(pointer.is_not(None) for pointer in pointers)).distinct()


def _staged_rows(role: RoleLayout, columns: Sequence[str], keys: KeySource, by: Key) -> sa.Select[tuple[object, ...]]:
    staged = role.staged
    rows = sa.select(*(staged.c[c] for c in columns)).join(keys, by.same(staged, keys))
    return rows.where(*_seen(role, staged))


def _stored_rows(role: RoleLayout, columns: Sequence[str], keys: KeySource, by: Key) -> sa.Select[tuple[object, ...]]:
    state = role.state
    staged_too = sa.exists().where(role.row_key.same(role.staged, state))
    rows = sa.select(*(state.c[c] for c in columns)).join(keys, by.same(state, keys))
    return rows.where(*_seen(role, state), sa.not_(staged_too))


def _seen(role: RoleLayout, rows: sa.Table) -> list[sa.ColumnElement[bool]]:
    """Which rows a slice takes: not the deleted ones, except where a deletion is a version that ends another."""
    return [] if "_deleted" in role.table.sliced else not_deleted(rows)
