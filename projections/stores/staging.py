"""The work of a batch inside the database: make whole what was staged, drop what is known, and commit it.

Every function before the commit is a handful of set-based statements over the staging tables of one generation. None of
them touches what readers see, and a batch that is repeated starts by emptying them.

Versions of a stream are dense, and a fold that jumps over one has lost an event: streams of which a batch lacks a
version are refused. Facts of a stream and versions of a row never change until they are deleted.

The transaction at the end is short: state, views and progress move together, and Spark has no part in it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.declaring.any_table import AnyTable
from projections.declaring.columns import ColumnType
from projections.declaring.tables import VALID_FROM, Table, set_at
from projections.errors import EventsMissing, StagingLost, UndecodableRecord
from projections.stores import dialects, forgetting
from projections.stores.finals import note_late
from projections.stores.handing_over import hand_over_batch
from projections.stores.layout import POSITION, GenerationLayout, TableLayout, ViewLayout
from projections.stores.runs import Progress, Run, advance

# Earlier than any time in microseconds; a version of a snapshot may be valid from there.
_BEGINNING = -(1 << 62)
# Without a condition SQLite's parser would take ON CONFLICT for that of a join.
_CLEAR = sa.true()


def require_no_gap(connection: sa.Connection, layout: TableLayout) -> None:
    """Raise EventsMissing where a fold would jump over a version."""
    if row := connection.execute(_gaps(layout).limit(1)).one_or_none():
        raise events_missing(layout.table.topic, row)


def events_missing(topic: str, row: Any) -> EventsMissing:
    """The error of a stream: ``row`` has its key, the version it stands at, and the first behind the gap."""
    return EventsMissing(
        f"events are missing before version {row.first} of {topic}-{row.key}",
        remedy="the topic lost records (was it compacted with another key?): republish it from the store",
        place=f"topic {topic}, stored version {row.known}",
    )


def streams_with_gaps(connection: sa.Connection, layout: TableLayout) -> list[tuple[str, int]]:
    """The keys of those streams among the staged ones, and the version that each stands at; -1 for none."""
    return [(row.key, int(row.known)) for row in connection.execute(_gaps(layout))]


def _gaps(layout: TableLayout) -> sa.Select[Any]:
    return _between_versions(layout) if layout.table.append_only else _between_states(layout)


def _between_versions(layout: TableLayout) -> sa.Select[Any]:
    """Of tables with a row an event: streams, not deleted, with an event whose one before it is not there."""
    staged, both = layout.staged, (layout.state, layout.staged.alias("others"))
    (name,) = layout.key
    of_stream = [rows.c[name] == staged.c[name] for rows in both]
    before = [sa.and_(same, rows.c["_pos"] == staged.c["_pos"] - 1) for same, rows in zip(of_stream, both, strict=True)]
    deleted = [sa.and_(same, rows.c["_deleted"]) for same, rows in zip(of_stream, both, strict=True)]
    key, first = staged.c[name].label("key"), sa.func.min(staged.c["_pos"]).label("first")
    known = sa.select(sa.func.max(both[0].c["_pos"])).where(of_stream[0]).scalar_subquery()
    query = sa.select(key, sa.func.coalesce(known, -1).label("known"), first).group_by(staged.c[name])
    lacks = [sa.not_(sa.exists().where(condition)) for condition in (*before, *deleted)]
    return query.where(staged.c["_pos"] > 0, *lacks)


def _between_states(layout: TableLayout) -> sa.Select[Any]:
    staged, state = layout.staged, layout.state
    known = sa.func.coalesce(state.c["_pos"], -1)
    # Of the versions that end the batch's without a gap: what it repeats before them need not be whole.
    first = staged.c["_first"]
    same = sa.and_(*(staged.c[column] == state.c[column] for column in layout.key))
    key = staged.c[layout.key[0]].label("key")
    query = sa.select(key, known.label("known"), first.label("first"))
    return query.select_from(staged.outerjoin(state, same)).where(first > known + 1, sa.not_(staged.c["_deleted"]))


def complete_facts(connection: sa.Connection, layout: TableLayout) -> None:
    """Drop the staged rows that the state has, and refuse those that contradict its rows."""
    if layout.table.is_dense:
        require_no_gap(connection, layout)
    elif layout.table.holds_versions:
        _require_first_whole(connection, layout)
    else:
        _require_one_each(connection, layout)
    known: sa.ColumnElement[bool] = sa.exists().where(_same(layout.state, layout.staged, layout.row_key))
    if not layout.table.holds_versions:
        # The event of a deleted stream: its row stays, marked, so that no repetition brings it back.
        known = known & sa.not_(layout.staged.c["_deleted"])
    connection.execute(sa.delete(layout.staged).where(known))


def _same(left: sa.FromClause, right: sa.FromClause, columns: tuple[str, ...]) -> sa.ColumnElement[bool]:
    return sa.and_(*(left.c[c] == right.c[c] for c in columns))


def _require_one_each(connection: sa.Connection, layout: TableLayout) -> None:
    """A key stands for one event: a second event of an aggregate would replace the first."""
    staged, state, key = layout.staged, layout.state, layout.key[0]
    other = sa.and_(staged.c[key] == state.c[key], staged.c["_pos"] != state.c["_pos"])
    second = sa.select(staged.c[key], staged.c["_pos"], state.c["_pos"].label("first")).join(state, other)
    second = second.where(sa.not_(staged.c["_deleted"]), sa.not_(state.c["_deleted"])).limit(1)
    if row := connection.execute(second).one_or_none():
        raise second_event(layout.table.topic, key=row[0], versions=f"{row[2]} and {row[1]}")


def second_event(topic: str, *, key: object, versions: str) -> UndecodableRecord:
    """Two events of one aggregate in a stream that is keyed by the aggregate."""
    return UndecodableRecord(
        f"{key} has two of the stream's events (versions {versions}), and its id is the key of one row",
        remedy="give every event a row: Stream.from_events(…, key='…', id='…') keys them by id@version",
        place=f"topic {topic}, key {key}",
    )


def _require_first_whole(connection: sa.Connection, layout: TableLayout) -> None:
    """The first version of a row carries every value; one that does not is an update whose earlier records are missing.

    Versions of a key arrive in their order, so that what is unavailable is in an earlier one.
    """
    staged = layout.staged
    first = [sa.not_(_earlier(rows, staged, layout)) for rows in (layout.state, staged.alias("others"))]
    unset = staged.c["_unset"]
    orphans = sa.select(*(staged.c[k] for k in layout.key), unset).where(unset.is_not(None), *first)
    if row := connection.execute(orphans.limit(1)).one_or_none():
        raise unavailable_value(layout.table.topic, key=row[0], columns=row[-1])


def _earlier(rows: sa.FromClause, staged: sa.Table, layout: TableLayout) -> sa.Exists:
    older = sa.tuple_(rows.c["_epoch"], rows.c["_pos"]) < sa.tuple_(staged.c["_epoch"], staged.c["_pos"])
    return sa.exists().where(_same(rows, staged, layout.key), older)


def unavailable_value(topic: str, *, key: object, columns: str) -> UndecodableRecord:
    """A TOAST value that no record still in the topic carries."""
    return UndecodableRecord(
        f"the value of {columns} is unavailable, and no earlier record of the key holds it",
        remedy="ALTER TABLE … REPLICA IDENTITY FULL at the source, then update the row once",
        place=f"topic {topic}, key {key}",
    )


def changed_since(table: AnyTable, staged: sa.Table) -> sa.Select[tuple[object, ...]]:
    """By key, the earliest event time for which the staged versions change what is valid.

    A version says nothing of the time before it. A snapshot's may be the first that is known of its key, and is then
    valid from the beginning.
    """
    since = sa.case((staged.c["_pos"] < 0, _BEGINNING), else_=staged.c[VALID_FROM])
    keys = [staged.c[k] for k in table.key]
    return sa.select(*keys, sa.func.min(since)).group_by(*keys)


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
        complete_facts(connection, layout)
        return
    if layout.table.is_dense:
        require_no_gap(connection, layout)
        _place_deletions(connection, layout)
    else:
        _place_tombstones(connection, layout)
        _pass_over_tombstones(connection, layout)
    _drop_stale(connection, layout)
    forgetting.require_newer(connection, layout)
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
        raise unavailable_value(layout.table.topic, key=row[0], columns=", ".join(lacking))


def stage_destroyed(connection: sa.Connection, layout: GenerationLayout, keys: Sequence[str]) -> None:
    """Note the keys, as ``key_of`` has them, that were destroyed."""
    if layout.destroyed is not None and keys:
        connection.execute(sa.insert(layout.destroyed), [{"key_id": key} for key in keys])


def commit_batch(
    connection: sa.Connection, layout: GenerationLayout, run: Run, *, start: Progress, end: Progress, mark: str
) -> None:
    """Apply everything staged, where newer, and advance the progress from ``start`` to ``end``.

    The caller holds the transaction. Raises ProjectionError or StagingLost before anything is changed; ``mark`` is what
    ``staging.begin`` gave.
    """
    dialects.find_by_index(connection)
    advance(connection, run, start, end)
    require_mark(connection, layout, mark)
    for table in layout.tables.values():
        _merge_state(connection, table)
    forgetting.note_staged(connection, layout, now=int(time.time()))
    note_late(connection, layout, run)
    for view in layout.views.values():
        _merge_view(connection, view)
    hand_over_batch(connection, layout, run)


def _merge_state(connection: sa.Connection, layout: TableLayout) -> None:
    columns = [*layout.table.stored, *POSITION, "_deleted"]
    staged = sa.select(*(layout.staged.c[c] for c in columns))
    statement = upsert(connection, layout.state).from_select(columns, staged.where(_CLEAR))
    newer = sa.tuple_(*(statement.excluded[p] for p in POSITION)) > sa.tuple_(*(layout.state.c[p] for p in POSITION))
    replaced = {c: statement.excluded[c] for c in columns if c not in layout.row_key}
    connection.execute(statement.on_conflict_do_update(index_elements=list(layout.row_key), set_=replaced, where=newer))


def _merge_view(connection: sa.Connection, layout: ViewLayout) -> None:
    """Replace the rows whose keys the batch changes, and drop those it retracts."""
    view, result, columns = layout.view, layout.result, list(layout.stored_columns)
    connection.execute(sa.delete(view).where(sa.exists().where(layout.key.same(result, view))))
    rows = sa.select(*(result.c[c] for c in columns)).where(sa.not_(result.c["_deleted"]))
    connection.execute(sa.insert(view).from_select(columns, rows))
