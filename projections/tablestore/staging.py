"""The work of a batch inside the database, before its transaction: complete what was staged, find what it affects.

Every function is a handful of set-based statements over the staging tables of one generation. None of them touches what
readers see, and a batch that is repeated starts by emptying them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from projections.columns import ColumnType
from projections.errors import KeyNotUnique, StagingLost
from projections.planner import ViewPlan
from projections.tables import EVENT_TIME, EventTable, Table, VersionTable, key_of, set_at
from projections.tablestore import dialects, facts, gaps
from projections.tablestore.layout import POSITION, SINCE, GenerationLayout, TableLayout, ViewLayout

# SQLAlchemy forgets how many rows an INSERT wrote unless it is asked to keep the number.
_COUNTED: Any = {"execution_options": {"preserve_rowcount": True}}


def empty(connection: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Empty working tables."""
    dialects.empty(connection, list(tables))


def begin(connection: sa.Connection, layout: GenerationLayout) -> str:
    """Empty the working tables for a new batch and mark them as its own; returns the mark."""
    empty(connection, layout.working_tables())
    mark = uuid.uuid4().hex
    connection.execute(sa.insert(layout.marker).values(id=mark))
    return mark


def require_mark(connection: sa.Connection, layout: GenerationLayout, mark: str) -> None:
    """Raise StagingLost unless the working tables still hold the batch of this mark.

    They are UNLOGGED on PostgreSQL: after a crash of the server they are empty, and what is left would pass for a batch
    that changes nothing. Another runner that emptied them leaves its own mark.
    """
    if list(connection.scalars(sa.select(layout.marker.c.id))) != [mark]:
        raise StagingLost(
            "what the batch had staged is gone: the database restarted, or another runner emptied it",
            remedy="start the run again: it goes on where it stood",
            place=layout.name,
        )


def complete(connection: sa.Connection, layout: TableLayout) -> None:
    """Make every staged row whole and drop those that are not newer than the stored row."""
    if layout.table.append_only:
        facts.complete(connection, layout)
        return
    if isinstance(layout.table, EventTable):
        gaps.require_no_gap(connection, layout)
    else:
        _place_tombstones(connection, layout)
    _drop_stale(connection, layout)
    _keep_unset_columns(connection, layout)


def stored_columns(table: Table) -> dict[str, ColumnType]:
    """What a fold in Python needs of a stored row: the state and the version it stands at."""
    return {**table.columns, "_pos": ColumnType("long")}


def stored_slice(connection: sa.Connection, layout: TableLayout) -> int:
    """Fill ``stored_*`` with the state rows of the keys in ``affected_*``, and return their number; no deleted ones."""
    columns = [*layout.table.columns, "_pos"]
    wanted = _same_key(layout.affected, layout.state, layout.key)
    rows = sa.select(*(layout.state.c[c] for c in columns)).join(layout.affected, wanted)
    rows = rows.where(sa.not_(layout.state.c._deleted))
    return connection.execute(sa.insert(layout.stored).from_select(columns, rows), **_COUNTED).rowcount


def _same_key(left: sa.Table, right: sa.Table, key: Sequence[str]) -> sa.ColumnElement[bool]:
    return sa.and_(*(left.c[column] == right.c[column] for column in key))


def _place_tombstones(connection: sa.Connection, layout: TableLayout) -> None:
    """A tombstone alone takes the position of its key's stored row; without one there is nothing to delete."""
    staged, state = layout.staged, layout.state
    place = {"_epoch": state.c._epoch, "_pos": state.c._pos}
    same = _same_key(staged, state, layout.key)
    connection.execute(sa.update(staged).values(place).where(staged.c._pos.is_(None), same))
    connection.execute(sa.delete(staged).where(staged.c._pos.is_(None)))


def _drop_stale(connection: sa.Connection, layout: TableLayout) -> None:
    staged, state = layout.staged, layout.state
    ours = sa.tuple_(*(staged.c[p] for p in POSITION))
    theirs = sa.tuple_(*(state.c[p] for p in POSITION))
    known = sa.exists().where(_same_key(staged, state, layout.key), ours <= theirs)
    connection.execute(sa.delete(staged).where(known))


def _keep_unset_columns(connection: sa.Connection, layout: TableLayout) -> None:
    """Take from the stored row what the batch did not set after it: declared columns, unavailable (TOAST) values."""
    staged, state = layout.staged, layout.state
    same_life = staged.c._epoch == state.c._epoch  # positions of two lives of a source say nothing of each other
    set_at_or_before = {
        c: sa.or_(staged.c[set_at(c)].is_(None), sa.and_(same_life, staged.c[set_at(c)] <= state.c._pos))
        for c in layout.table.sometimes_unset
    }
    kept = {
        part: sa.case((old, state.c[part]), else_=staged.c[part])
        for c, old in set_at_or_before.items()
        for part in layout.table.parts(c)
    }
    if kept:
        same = _same_key(staged, state, layout.key)
        connection.execute(sa.update(staged).values(kept).where(same))
        if not isinstance(layout.table, EventTable):
            _require_known(connection, layout)


def _require_known(connection: sa.Connection, layout: TableLayout) -> None:
    """A new row has every value; one that lacks one was an update whose earlier record is gone."""
    staged, state = layout.staged, layout.state
    unset = {c: staged.c[set_at(c)].is_(None) for c in layout.table.sometimes_unset}
    orphans = (
        sa.select(*(staged.c[k] for k in layout.key), *(missing.label(c) for c, missing in unset.items()))
        .select_from(staged.outerjoin(state, _same_key(staged, state, layout.key)))
        .where(sa.or_(*unset.values()), state.c._pos.is_(None), sa.not_(staged.c._deleted))
        .limit(1)
    )
    if row := connection.execute(orphans).one_or_none():
        lacking = [c for c, missing in zip(unset, row[len(layout.key) :], strict=True) if missing]
        raise facts.unavailable_value(layout.table.topic, key=row[0], columns=", ".join(lacking))


def stage_destroyed(connection: sa.Connection, layout: GenerationLayout, keys: Sequence[str]) -> None:
    """Note the keys, as ``key_of`` has them, that were destroyed."""
    if layout.destroyed is not None and keys:
        connection.execute(sa.insert(layout.destroyed), [{"key_id": key} for key in keys])


def find_affected(connection: sa.Connection, layout: GenerationLayout, plan: ViewPlan) -> int:
    """Fill ``affected_*`` for every table of the view and return the number of affected view keys.

    A root row that was moved from one parent to another is affected itself; one that referenced a changed row before
    the batch still does so in the stored state: so the stored foreign keys and the staged keys together reach both
    sides. A version reaches only rows whose event time is not before it.
    """
    for name in plan.upwards:
        connection.execute(_fill_affected(layout, plan, name))
    root = layout.tables[plan.view.root]
    return int(connection.scalar(sa.select(sa.func.count()).select_from(root.affected)) or 0)


def _fill_affected(layout: GenerationLayout, plan: ViewPlan, name: str) -> sa.Insert:
    tables = layout.tables[name]
    if isinstance(tables.table, VersionTable):
        return sa.insert(tables.affected).from_select([*tables.key, SINCE], facts.changed_since(tables))
    reached = [sa.select(*(tables.staged.c[k] for k in tables.key))]
    reached += [_referencing(tables, r.column, layout.tables[r.target]) for r in plan.references_from(name)]
    if layout.destroyed is not None:
        reached += [_sealed_under(tables, column, layout.destroyed) for column in tables.table.personal]
    # One part alone is no UNION, and would not be made distinct; staged keys are distinct by themselves.
    return sa.insert(tables.affected).from_select(list(tables.key), sa.union(*reached))


def _referencing(tables: TableLayout, column: str, target: TableLayout) -> sa.Select[tuple[object, ...]]:
    """The keys of the state's rows that point to an affected row."""
    rows = sa.select(*(tables.state.c[k] for k in tables.key))
    pointer, pointed = tables.state.c[column], target.affected.c[target.key[0]]
    if isinstance(target.table, VersionTable):
        not_before = tables.state.c[EVENT_TIME] >= target.affected.c[SINCE]
        return rows.join(target.affected, sa.and_(pointer == pointed, not_before))
    return rows.where(pointer.in_(sa.select(pointed)))


def _sealed_under(tables: TableLayout, column: str, destroyed: sa.Table) -> sa.Select[tuple[object, ...]]:
    """The keys of the state's rows with a value whose key is destroyed by the batch."""
    rows = sa.select(*(tables.state.c[k] for k in tables.key))
    return rows.where(tables.state.c[key_of(column)].in_(sa.select(destroyed.c["key_id"])))


def cut_slices(connection: sa.Connection, layout: GenerationLayout, plan: ViewPlan) -> dict[str, int]:
    """Fill ``slice_*``: the affected root rows and the rows they point to, stored state overlaid with staged changes.

    Returns the number of rows of each slice, by table.
    """
    return {name: _cut_slice(connection, layout, plan, name) for name in plan.downwards}


def _cut_slice(connection: sa.Connection, layout: GenerationLayout, plan: ViewPlan, name: str) -> int:
    tables = layout.tables[name]
    wanted = _wanted_keys(layout, plan, name)
    columns = list(tables.table.sliced)
    overlay = sa.union_all(_staged_rows(tables, columns, wanted), _stored_rows(tables, columns, wanted))
    result = connection.execute(sa.insert(tables.slice).from_select(columns, overlay), **_COUNTED)
    return result.rowcount


def _wanted_keys(layout: GenerationLayout, plan: ViewPlan, name: str) -> sa.CTE:
    """Keys of a table whose rows the view function needs, each once, as a CTE with columns k0, k1 and so on."""
    tables = layout.tables[name]
    if name == plan.view.root:
        query: sa.Select[tuple[object, ...]] | sa.CompoundSelect[tuple[object, ...]] = sa.select(
            *(tables.affected.c[k].label(f"k{i}") for i, k in enumerate(tables.key))
        )
    else:
        parts = []
        for reference in plan.references_to(name):
            column = layout.tables[reference.source].slice.c[reference.column]
            parts.append(sa.select(column.label("k0")).where(column.is_not(None)).distinct())
        query = sa.union(*parts)
    return query.cte("wanted")


def _staged_rows(tables: TableLayout, columns: Sequence[str], wanted: sa.CTE) -> sa.Select[tuple[object, ...]]:
    staged = tables.staged
    joined = sa.and_(*(staged.c[k] == wanted.c[f"k{i}"] for i, k in enumerate(tables.key)))
    return sa.select(*(staged.c[c] for c in columns)).join(wanted, joined).where(*_seen(tables, staged))


def _stored_rows(tables: TableLayout, columns: Sequence[str], wanted: sa.CTE) -> sa.Select[tuple[object, ...]]:
    state = tables.state
    joined = sa.and_(*(state.c[k] == wanted.c[f"k{i}"] for i, k in enumerate(tables.key)))
    staged_too = sa.exists().where(_same_key(tables.staged, state, tables.row_key))
    rows = sa.select(*(state.c[c] for c in columns)).join(wanted, joined)
    return rows.where(*_seen(tables, state), sa.not_(staged_too))


def _seen(tables: TableLayout, rows: sa.Table) -> list[sa.ColumnElement[bool]]:
    """Which rows a slice takes: not the deleted ones, except where a deletion is a version that ends another."""
    return [] if "_deleted" in tables.table.sliced else [sa.not_(rows.c._deleted)]


def stage_difference(connection: sa.Connection, affected: TableLayout, view: ViewLayout) -> tuple[int, int]:
    """Reduce ``result_*`` to rows that differ from the view, fill ``retracted_*``; returns (upserts, retractions)."""
    _require_unique(connection, view)
    _require_affected(connection, affected, view)
    key = view.key
    has_result = sa.exists().where(view.result.c[key] == affected.affected.c[key])
    gone = sa.select(view.view.c[key]).join(affected.affected, affected.affected.c[key] == view.view.c[key])
    absent = gone.where(sa.not_(has_result))
    retracted = connection.execute(sa.insert(view.retracted).from_select([key], absent), **_COUNTED)
    payload = [c for c in view.columns if c != key]
    unchanged = [view.result.c[c].is_not_distinct_from(view.view.c[c]) for c in payload]
    same = sa.exists().where(view.result.c[key] == view.view.c[key], *unchanged)
    connection.execute(sa.delete(view.result).where(same))
    upserts = connection.scalar(sa.select(sa.func.count()).select_from(view.result))
    return int(upserts or 0), retracted.rowcount


def _require_unique(connection: sa.Connection, view: ViewLayout) -> None:
    key = view.result.c[view.key]
    repeated = sa.select(key).group_by(key).having(sa.or_(sa.func.count() > 1, key.is_(None))).limit(1)
    if row := connection.execute(repeated).one_or_none():
        raise key_not_unique(view.name, row[0])


def _require_affected(connection: sa.Connection, affected: TableLayout, view: ViewLayout) -> None:
    """A row under another key than its root's would never be retracted."""
    # EXCEPT is hashed whatever the planner believes of these tables' sizes; NOT EXISTS was planned as a nested loop.
    given = sa.select(affected.affected.c[view.key])
    foreign = sa.except_(sa.select(view.result.c[view.key]), given).limit(1)
    if row := connection.execute(foreign).one_or_none():
        raise KeyNotUnique(
            f"{view.name} returned key {row[0]!r}, which is no key of the rows it was given",
            remedy=f"select the root table's own {view.key}",
            place=view.name,
        )


def key_not_unique(view: str, key: object) -> KeyNotUnique:
    """The error of a view function that returned a key twice, or null."""
    return KeyNotUnique(
        f"{view} returned key {key!r} {'twice' if key is not None else 'as null'}",
        remedy="join along references only: each must point to at most one row; keep the root's key column",
        place=view,
    )
