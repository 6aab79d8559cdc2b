"""Which keys of a view's tables a batch reaches, found by its foreign keys in the state and in what is staged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from projections.declaring.any_table import key_of
from projections.declaring.tables import EVENT_TIME
from projections.planning.planner import ViewPlan
from projections.stores import facts
from projections.stores.layout import SINCE, GenerationLayout, RoleLayout, ViewLayout

Keys = sa.Select[tuple[object, ...]]


def find_affected(connection: sa.Connection, layout: GenerationLayout, view: ViewLayout, plan: ViewPlan) -> int:
    """Fill ``affected_*`` for every table of the view and return the number of root keys or groups reached.

    A root row that was moved from one parent to another is affected itself; one that referenced a changed row before
    the batch still does so in the stored state: so the stored foreign keys and the staged keys together reach both
    sides. A version reaches only rows whose event time is not before it.
    """
    if view.definition.by:
        return _count(connection, _fill_partitions(connection, layout, view))
    for name in plan.upwards:
        connection.execute(_fill(layout, view, plan, name))
    return _count(connection, view.root.affected)


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def changed_keys(role: RoleLayout) -> Keys:
    """The keys of the rows that a batch changes."""
    return sa.select(*(role.staged.c[k] for k in role.table.key))


def _fill(layout: GenerationLayout, view: ViewLayout, plan: ViewPlan, name: str) -> sa.Insert:
    role = view.roles[name]
    key = role.table.key
    if role.table.holds_versions:
        return sa.insert(role.affected).from_select([*key, SINCE], facts.changed_since(role.table, role.staged))
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
    changed = stored.join(role.staged, role.row_key.same(role.state, role.staged)).where(*not_deleted(role.state))
    there = staged.where(sa.not_(role.staged.c["_deleted"]))
    return [changed, there, *_partitions_of_persons(role, stored, destroyed)]


def _partitions_of_persons(role: RoleLayout, stored: Keys, destroyed: sa.Table | None) -> list[Keys]:
    """The partitions of values whose key is destroyed by the batch."""
    if destroyed is None:
        return []
    keys = sa.select(destroyed.c["key_id"])
    return [stored.where(role.state.c[key_of(column)].in_(keys)) for column in role.table.personal]


def not_deleted(rows: sa.Table) -> list[sa.ColumnElement[bool]]:
    """Rows that are there: a view has no other ones."""
    return [sa.not_(rows.c["_deleted"])] if "_deleted" in rows.c else []
