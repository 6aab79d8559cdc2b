"""The work of a batch inside the database, before its transaction: make whole what was staged, drop what is known.

Every function is a handful of set-based statements over the staging tables of one generation. None of them touches what
readers see, and a batch that is repeated starts by emptying them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import sqlalchemy as sa

from projections.declaring.columns import ColumnType
from projections.declaring.tables import Table, set_at
from projections.errors import StagingLost
from projections.stores import dialects, facts, gaps, horizon
from projections.stores.layout import POSITION, GenerationLayout, TableLayout


def begin(connection: sa.Connection, layout: GenerationLayout) -> str:
    """Empty the working tables for a new batch and mark them as its own; returns the mark."""
    dialects.empty(connection, layout.working_tables())
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
            "the staged rows of the batch are missing: the database restarted, or another runner emptied it",
            remedy="start the run again: it goes on where it stood",
            place=layout.name,
        )


def complete(connection: sa.Connection, layout: TableLayout) -> None:
    """Make every staged row whole and drop those that are not newer than the stored row."""
    if layout.table.append_only:
        facts.complete(connection, layout)
        return
    if layout.table.is_dense:
        gaps.require_no_gap(connection, layout)
        _place_deletions(connection, layout)
    else:
        _place_tombstones(connection, layout)
        _pass_over_tombstones(connection, layout)
    _drop_stale(connection, layout)
    horizon.require_newer(connection, layout)
    _keep_unset_columns(connection, layout)


def stored_columns(table: Table) -> dict[str, ColumnType]:
    """What a fold in Python needs of a stored row: the state and the version it stands at."""
    return {**table.columns, "_pos": ColumnType("long")}


def stored_slice(connection: sa.Connection, layout: TableLayout) -> int:
    """Fill ``stored_*`` with the state rows of the keys in ``wanted_*``, and return their number; no deleted ones."""
    columns = [*layout.table.columns, "_pos"]
    same = _same_key(layout.wanted, layout.state, layout.key)
    rows = sa.select(*(layout.state.c[c] for c in columns)).join(layout.wanted, same)
    rows = rows.where(sa.not_(layout.state.c._deleted))
    return dialects.counted(connection, sa.insert(layout.stored).from_select(columns, rows))


def _same_key(left: sa.Table, right: sa.Table, key: Sequence[str]) -> sa.ColumnElement[bool]:
    return sa.and_(*(left.c[column] == right.c[column] for column in key))


def _place_tombstones(connection: sa.Connection, layout: TableLayout) -> None:
    """A tombstone alone takes the position of its key's stored row; without one there is nothing to delete."""
    staged, state = layout.staged, layout.state
    place = {"_epoch": state.c._epoch, "_pos": state.c._pos}
    same = _same_key(staged, state, layout.row_key)
    connection.execute(sa.update(staged).values(place).where(staged.c._pos.is_(None), same))
    connection.execute(sa.delete(staged).where(staged.c._pos.is_(None)))


def _place_deletions(connection: sa.Connection, layout: TableLayout) -> None:
    """A stream is deleted by the first of its tombstones, though those of its last events come in the next batch."""
    staged, state = layout.staged, layout.state
    earlier = sa.and_(staged.c._deleted, staged.c._pos < state.c._pos)
    same = _same_key(staged, state, layout.row_key)
    connection.execute(sa.update(staged).values({"_pos": state.c._pos}).where(earlier, same))


def _pass_over_tombstones(connection: sa.Connection, layout: TableLayout) -> None:
    """Let a row that is there know the tombstone of an old deletion, which stands right behind it.

    In the next batch the tombstone may be alone, and would look like one whose deletion was compacted away.
    """
    staged, state = layout.staged, layout.state
    old = sa.tuple_(staged.c._epoch, staged.c._pos) < sa.tuple_(state.c._epoch, state.c._pos)
    passed = sa.and_(staged.c._deleted, sa.not_(state.c._deleted), old, staged.c._offset >= state.c._offset)
    again = {c: state.c[c] for c in (*layout.table.stored, "_epoch", "_pos", "_deleted")}
    known = again | {"_offset": staged.c._offset + 1}
    connection.execute(sa.update(staged).values(known).where(_same_key(staged, state, layout.row_key), passed))


def _drop_stale(connection: sa.Connection, layout: TableLayout) -> None:
    staged, state = layout.staged, layout.state
    ours = sa.tuple_(*(staged.c[p] for p in POSITION))
    theirs = sa.tuple_(*(state.c[p] for p in POSITION))
    known = sa.exists().where(_same_key(staged, state, layout.row_key), ours <= theirs)
    connection.execute(sa.delete(staged).where(known))


def _keep_unset_columns(connection: sa.Connection, layout: TableLayout) -> None:
    """Take from the stored row what the batch did not set after it: declared columns, unavailable (TOAST) values."""
    staged, state = layout.staged, layout.state
    same_life = staged.c._epoch == state.c._epoch  # two lives of a source say nothing of each other
    set_at_or_before = {
        c: sa.and_(same_life, sa.or_(staged.c[set_at(c)].is_(None), staged.c[set_at(c)] <= state.c._pos))
        for c in layout.table.sometimes_unset
    }
    values = {
        part: sa.case((old, state.c[part]), else_=staged.c[part])
        for c, old in set_at_or_before.items()
        for part in layout.table.parts(c)
    }
    if values:
        same = _same_key(staged, state, layout.row_key)
        connection.execute(sa.update(staged).values(values).where(same))
        if not layout.table.is_dense:
            _require_known(connection, layout)


def _require_known(connection: sa.Connection, layout: TableLayout) -> None:
    """A row that is new in its life has every value; else its earlier record is missing."""
    staged, state = layout.staged, layout.state
    is_new = sa.or_(state.c._pos.is_(None), state.c._epoch != staged.c._epoch)
    unset = {c: staged.c[set_at(c)].is_(None) for c in layout.table.sometimes_unset}
    orphans = (
        sa.select(*(staged.c[k] for k in layout.key), *(missing.label(c) for c, missing in unset.items()))
        .select_from(staged.outerjoin(state, _same_key(staged, state, layout.row_key)))
        .where(sa.or_(*unset.values()), is_new, sa.not_(staged.c._deleted))
        .limit(1)
    )
    if row := connection.execute(orphans).one_or_none():
        lacking = [c for c, missing in zip(unset, row[len(layout.key) :], strict=True) if missing]
        raise facts.unavailable_value(layout.table.topic, key=row[0], columns=", ".join(lacking))


def stage_destroyed(connection: sa.Connection, layout: GenerationLayout, keys: Sequence[str]) -> None:
    """Note the keys, as ``key_of`` has them, that were destroyed."""
    if layout.destroyed is not None and keys:
        connection.execute(sa.insert(layout.destroyed), [{"key_id": key} for key in keys])
