"""Rows that never change until they are deleted, facts of a stream and versions of a row, before their transaction."""

from __future__ import annotations

import sqlalchemy as sa

from projections.declaring.any_table import AnyTable
from projections.declaring.tables import VALID_FROM
from projections.errors import UndecodableRecord
from projections.stores import gaps
from projections.stores.layout import TableLayout

# Earlier than any time in microseconds; a version of a snapshot may be valid from there.
_BEGINNING = -(1 << 62)


def complete(connection: sa.Connection, layout: TableLayout) -> None:
    """Drop the staged rows that the state has, and refuse those that contradict its rows."""
    if layout.table.is_dense:
        gaps.require_no_gap(connection, layout)
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
