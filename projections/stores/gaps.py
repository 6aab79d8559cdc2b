"""Streams of which a batch lacks a version: versions are dense, and a fold that jumps over one has lost an event."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from projections.errors import EventsMissing
from projections.stores.layout import TableLayout


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
