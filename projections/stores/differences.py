"""What a batch changes in a view: the function's result held against the stored rows of the affected keys."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from eventstore.delivery.source import MASK
from projections.declaring.partials import AFTER, BEFORE, GROUPS, WHOLE
from projections.declaring.views import View
from projections.errors import KeyNotUnique
from projections.planning.planner import ViewPlan
from projections.stores import dialects, retained
from projections.stores.affected import not_deleted
from projections.stores.layout import PartialLayout, RoleLayout, ViewLayout


def stage_difference(
    connection: sa.Connection,
    view: ViewLayout,
    plan: ViewPlan,
    *,
    frozen: retained.Frozen | None = None,
) -> tuple[int, int]:
    """Reduce ``result_*`` to rows that differ from the view, and mark in it those to retract.

    Rows that are ``frozen``, in the result and in the view, are left as they are: what they follow from is forgotten.
    Returns the numbers of upserts and of retractions.
    """
    retained.require_times(connection, view, view.result)
    if frozen is not None:
        connection.execute(sa.delete(view.result).where(frozen.among(view.result)))
    _require_unique(connection, view)
    _require_affected(connection, view)
    retractions = _retract(connection, view, frozen)
    connection.execute(sa.delete(view.result).where(_unchanged(view)))
    rows = connection.scalar(sa.select(sa.func.count()).select_from(view.result))
    return int(rows or 0) - retractions, retractions


def _unchanged(view: ViewLayout) -> sa.ColumnElement[bool]:
    equal = [view.result.c[c].is_not_distinct_from(view.view.c[c]) for c in _compared(view)]
    same = sa.exists().where(view.key.same(view.result, view.view), *equal)
    return sa.and_(sa.not_(view.result.c["_deleted"]), same)


def _compared(view: ViewLayout) -> list[str]:
    """All but the key; partial aggregates may change in a row that shows the same."""
    return [c for c in view.stored_columns if c not in view.key.columns]


def _retract(connection: sa.Connection, view: ViewLayout, frozen: retained.Frozen | None) -> int:
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
    queries = {BEFORE: _before(view.root), AFTER: _after(view.root), GROUPS: _stored_groups(view, columns)}
    return {name: _fill(connection, partials.tables[name], query) for name, query in queries.items()}


def _fill(connection: sa.Connection, table: sa.Table, rows: sa.Select[tuple[object, ...]]) -> int:
    return dialects.counted(connection, sa.insert(table).from_select([c.name for c in table.columns], rows))


def _before(role: RoleLayout) -> sa.Select[tuple[object, ...]]:
    """The changed rows as they were; those that were not there, or deleted, came to nothing."""
    rows = sa.select(*(role.state.c[c] for c in role.table.sliced))
    return rows.join(role.staged, role.row_key.same(role.state, role.staged)).where(*not_deleted(role.state))


def _after(role: RoleLayout) -> sa.Select[tuple[object, ...]]:
    return sa.select(*(role.staged.c[c] for c in role.table.sliced)).where(*not_deleted(role.staged))


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
