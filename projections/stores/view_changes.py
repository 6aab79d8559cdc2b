"""What a batch changes in a view: the keys that it reaches, the rows that the view's function needs, the difference.

Keys are found by the view's foreign keys in the state and in what is staged. The rows are stored state overlaid with
staged changes. The function's result is held against the stored rows of the affected keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from eventstore.delivery.source import MASK
from projections.declaring.any_table import key_of
from projections.declaring.columns import AFTER, BEFORE, GROUPS, WHOLE
from projections.declaring.tables import EVENT_TIME
from projections.declaring.views import View
from projections.errors import KeyNotUnique
from projections.planning.planner import ViewPlan
from projections.stores import dialects, forgetting, staging
from projections.stores.dialects import Key
from projections.stores.layout import SINCE, GenerationLayout, PartialLayout, RoleLayout, ViewLayout
from projections.stores.near_rows import after, before, cut_near, fill_ranges, not_deleted

Keys = sa.Select[tuple[object, ...]]
KeySource = sa.CTE | sa.Table


def find_affected(connection: sa.Connection, layout: GenerationLayout, view: ViewLayout, plan: ViewPlan) -> int:
    """Fill ``affected_*`` for every table of the view and return the number of root keys or groups reached.

    A root row that was moved from one parent to another is affected itself; one that referenced a changed row before
    the batch still does so in the stored state: so the stored foreign keys and the staged keys together reach both
    sides. A version reaches only rows whose event time is not before it.
    """
    if view.near is not None:
        fill_ranges(connection, view, view.near)
        return _count(connection, view.root.affected)
    if view.definition.by:
        return _count(connection, _fill_partitions(connection, layout, view))
    for name in plan.upwards:
        connection.execute(_fill(layout, view, plan, name))
    return _count(connection, view.root.affected)


def _count(connection: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(table).where(*where)) or 0)


def changed_keys(role: RoleLayout) -> Keys:
    """The keys of the rows that a batch changes."""
    return sa.select(*(role.staged.c[k] for k in role.table.key))


def _fill(layout: GenerationLayout, view: ViewLayout, plan: ViewPlan, name: str) -> sa.Insert:
    role = view.roles[name]
    key = role.table.key
    if role.table.holds_versions:
        return sa.insert(role.affected).from_select([*key, SINCE], staging.changed_since(role.table, role.staged))
    reached = [changed_keys(role)]
    reached += [_referencing(role, r.columns, view.roles[r.target]) for r in plan.references_from(name)]
    if layout.destroyed is not None:
        reached += [_sealed_under(role, column, layout.destroyed) for column in role.table.personal]
    # One part alone is no UNION, and would not be made distinct; staged keys are distinct by themselves.
    return sa.insert(role.affected).from_select(list(key), sa.union(*reached))


def _referencing(role: RoleLayout, columns: Sequence[str], target: RoleLayout) -> Keys:
    """The keys of the state's rows that point to an affected row."""
    rows = sa.select(*(role.state.c[k] for k in role.table.key))
    pointed = [target.affected.c[k] for k in target.table.key]
    if target.table.holds_versions:
        not_before = role.state.c[EVENT_TIME] >= target.affected.c[SINCE]
        return rows.join(target.affected, sa.and_(role.state.c[columns[0]] == pointed[0], not_before))
    return rows.where(_row(role.state, columns).in_(sa.select(*pointed)))


def _row(table: sa.Table, columns: Sequence[str]) -> sa.ColumnElement[Any]:
    return table.c[columns[0]] if len(columns) == 1 else sa.tuple_(*(table.c[c] for c in columns))


def _sealed_under(role: RoleLayout, column: str, destroyed: sa.Table) -> Keys:
    """The keys of the state's rows with a value whose key is destroyed by the batch."""
    rows = sa.select(*(role.state.c[k] for k in role.table.key))
    return rows.where(role.state.c[key_of(column)].in_(sa.select(destroyed.c["key_id"])))


def _fill_partitions(connection: sa.Connection, layout: GenerationLayout, view: ViewLayout) -> sa.Table:
    """The partitions that changed rows of any table were in, and those they are in now; the same for all tables."""
    reached = [query for role in view.roles.values() for query in _partitions(role, layout.destroyed)]
    by = list(view.root.reached_by.columns)
    connection.execute(sa.insert(view.root.affected).from_select(by, sa.union(*reached)))
    for role in view.roles.values():
        if role is not view.root:
            by = list(role.reached_by.columns)
            connection.execute(sa.insert(role.affected).from_select(by, sa.select(*view.root.affected.c)))
    return view.root.affected


def _partitions(role: RoleLayout, destroyed: sa.Table | None) -> list[Keys]:
    stored, staged = (sa.select(*role.reached_by.of(rows)) for rows in (role.state, role.staged))
    # Where a deletion is a version, or says that a stream is deleted, it is in no row before it.
    if "_deleted" in role.table.sliced:
        # Distinct here: one part alone is no UNION.
        return [staged.distinct(), *_partitions_of_persons(role, stored, destroyed)]
    changed, there = before(role, role.reached_by.of(role.state)), after(role, role.reached_by.of(role.staged))
    return [changed, there, *_partitions_of_persons(role, stored, destroyed)]


def _partitions_of_persons(role: RoleLayout, stored: Keys, destroyed: sa.Table | None) -> list[Keys]:
    """The partitions of values whose key is destroyed by the batch."""
    if destroyed is None:
        return []
    keys = sa.select(destroyed.c["key_id"])
    return [stored.where(role.state.c[key_of(column)].in_(keys)) for column in role.table.personal]


def cut_slices(connection: sa.Connection, view: ViewLayout, plan: ViewPlan) -> dict[str, int]:
    """Fill ``slice_*``: the affected root rows, or all rows of affected groups, and the rows they point to.

    Returns the number of rows of each slice, by table.
    """
    if view.near is not None:
        return cut_near(connection, view, view.near)
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


def stage_difference(
    connection: sa.Connection,
    view: ViewLayout,
    plan: ViewPlan,
    *,
    frozen: forgetting.Frozen | None = None,
) -> tuple[int, int]:
    """Reduce ``result_*`` to rows that differ from the view, and mark in it those to retract.

    Rows that are ``frozen``, in the result and in the view, are left as they are: what they follow from is forgotten.
    Returns the numbers of upserts and of retractions.
    """
    forgetting.require_times(connection, view, view.result)
    if frozen is not None:
        connection.execute(sa.delete(view.result).where(frozen.among(view.result)))
    _require_unique(connection, view)
    _require_affected(connection, view)
    if view.near is not None:  # the result has what differs
        retractions = _count(connection, view.result, view.result.c["_deleted"])
    else:
        retractions = _retract(connection, view, frozen)
        connection.execute(sa.delete(view.result).where(_unchanged(view)))
    return _count(connection, view.result) - retractions, retractions


def _unchanged(view: ViewLayout) -> sa.ColumnElement[bool]:
    equal = [view.result.c[c].is_not_distinct_from(view.view.c[c]) for c in _compared(view)]
    same = sa.exists().where(view.key.same(view.result, view.view), *equal)
    return sa.and_(sa.not_(view.result.c["_deleted"]), same)


def _compared(view: ViewLayout) -> list[str]:
    """All but the key; partial aggregates may change in a row that shows the same."""
    return [c for c in view.stored_columns if c not in view.key.columns]


def _retract(connection: sa.Connection, view: ViewLayout, frozen: forgetting.Frozen | None) -> int:
    """Mark the stored rows of affected keys that the result no longer has."""
    key = list(view.key.columns)
    is_reached = view.root_key.same(view.view, view.root.affected, view.root.reached_by)
    stored = sa.select(*view.key.of(view.view)).join(view.root.affected, is_reached)
    if frozen is not None:
        stored = stored.where(sa.not_(frozen.among(view.view)))
    reached = stored.subquery()
    still = sa.exists().where(view.key.same(view.result, reached))
    retracted = sa.select(*(reached.c[c] for c in key), sa.true()).where(sa.not_(still))
    return dialects.counted(connection, sa.insert(view.result).from_select([*key, "_deleted"], retracted))


def _require_unique(connection: sa.Connection, view: ViewLayout) -> None:
    if key := connection.execute(repeated_keys(view, view.result)).one_or_none():
        raise key_not_unique(view, key)


def repeated_keys(view: ViewLayout, rows: sa.Table) -> sa.Select[tuple[object, ...]]:
    """A key that comes twice, or that is null where it must not be."""
    key = view.key.of(rows)
    query = sa.select(*key).group_by(*key)
    nothing: sa.ColumnElement[bool] = sa.false() if view.key.nullable else view.key.is_null(rows)
    return query.having(sa.or_(sa.func.count() > 1, nothing)).limit(1)


def key_not_unique(view: ViewLayout, key: sa.Row[tuple[object, ...]]) -> KeyNotUnique:
    """The error of a view function that returned a key twice, or null."""
    return returned_key(view.definition, tuple(key))


def returned_key(view: View, values: tuple[object, ...]) -> KeyNotUnique:
    """The error of a view function that returned a key twice, or null."""
    key = _shown(view, view.key, values)
    missing = all(part is None for part in values) if view.key_may_be_null else any(part is None for part in values)
    return KeyNotUnique(
        f"{view.name} returned key {key} {'as null' if missing and not view.by else 'twice'}",
        remedy="group by the declared columns and no others"
        if view.grouped
        else "name in key what tells the rows of one partition apart"
        if view.by
        else "join along references only: each must point to at most one row. Keep the root's key column",
        place=view.name,
    )


def _require_affected(connection: sa.Connection, view: ViewLayout) -> None:
    """A row under another key than its root's would never be retracted."""
    # EXCEPT is hashed whatever the planner believes of these tables' sizes; NOT EXISTS was planned as a nested loop.
    given = sa.select(*view.root.reached_by.of(view.root.affected))
    mine = sa.select(*view.root_key.of(view.result))
    if row := connection.execute(sa.except_(mine, given).limit(1)).one_or_none():
        raise not_of_the_root(view.definition, tuple(row))


def not_of_the_root(view: View, values: tuple[object, ...]) -> KeyNotUnique:
    """The error of a view function that returned a key of no row that it was given."""
    return KeyNotUnique(
        f"{view.name} returned key {_shown(view, view.root_key, values)}, which is no key of the rows it was given",
        remedy=f"select the root table's own {', '.join(view.root_key)}",
        place=view.name,
    )


def _shown(view: View, columns: Sequence[str], values: tuple[object, ...]) -> str:
    """A key by its columns; a function that is given personal values may have returned one under any name."""
    return ", ".join(
        f"{column}={MASK if view.may_be_personal and value is not None else repr(value)}"
        for column, value in zip(columns, values, strict=True)
    )


def cut_changes(connection: sa.Connection, view: ViewLayout, partials: PartialLayout) -> dict[str, int]:
    """Fill the tables of what is added up: changed rows before and after the batch, and what is kept of their groups.

    Returns the number of rows of each.
    """
    columns = list(partials.columns[GROUPS])
    role, own = view.root, view.root.table.sliced
    rows = {BEFORE: before(role, [role.state.c[c] for c in own]), AFTER: after(role, [role.staged.c[c] for c in own])}
    queries = {**rows, GROUPS: _stored_groups(view, columns)}
    return {name: _fill_part(connection, partials.tables[name], query) for name, query in queries.items()}


def _fill_part(connection: sa.Connection, table: sa.Table, rows: sa.Select[tuple[object, ...]]) -> int:
    return dialects.counted(connection, sa.insert(table).from_select([c.name for c in table.columns], rows))


def _stored_groups(view: ViewLayout, columns: Sequence[str]) -> sa.Select[tuple[object, ...]]:
    affected = view.root.affected
    rows = sa.select(*(view.view.c[c] for c in columns))
    return rows.join(affected, view.root_key.same(view.view, affected, view.root.reached_by))


def has_marked(connection: sa.Connection, view: ViewLayout) -> bool:
    """Whether any group is to be computed whole."""
    return bool(connection.scalar(sa.select(sa.exists().where(marked(view)))))


def drop_marked(connection: sa.Connection, view: ViewLayout) -> None:
    """Drop from the result the groups that are to be computed whole, once their rows are in the slice."""
    connection.execute(sa.delete(view.result).where(marked(view)))


def marked(view: ViewLayout) -> sa.ColumnElement[bool]:
    """Whether a row of the result stands for a group whose changes do not tell what becomes of it."""
    return view.result.c[WHOLE].is_(sa.true())
