"""Streams of which a batch lacks a version: versions are dense, and a fold that jumps over one has lost an event."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from projections.errors import EventsMissing
from projections.tablestore.layout import TableLayout


def require_no_gap(connection: sa.Connection, layout: TableLayout) -> None:
    """Raise EventsMissing where a fold would jump over a version."""
    if row := connection.execute(_gaps(layout).limit(1)).one_or_none():
        raise events_missing(layout.table.topic, row)


def events_missing(topic: str, row: Any) -> EventsMissing:
    """The error of a stream: ``row`` has its key, the versions known and first in the batch, and the last, pos."""
    return EventsMissing(
        f"events are missing before version {row.pos} of {topic}-{row.key}",
        remedy="the topic lost records (was it compacted with another key?): republish it from the store",
        place=f"topic {topic}, stored version {row.known}, first in batch {row.first}",
    )


def streams_with_gaps(connection: sa.Connection, layout: TableLayout) -> list[tuple[str, int]]:
    """The keys of those streams among the staged ones, and the version that each stands at; -1 for none."""
    return [(row.key, int(row.known)) for row in connection.execute(_gaps(layout))]


def _gaps(layout: TableLayout) -> sa.Select[Any]:
    staged, state = layout.staged, layout.state
    known = sa.func.coalesce(state.c["_pos"], -1)
    first, pos = staged.c["_first"], staged.c["_pos"]
    # A batch that repeats versions below the stored one may lack those between: only a batch of new ones must be dense.
    sparse = staged.c["_count"] < pos - first + 1
    same = sa.and_(*(staged.c[column] == state.c[column] for column in layout.key))
    key = staged.c[layout.key[0]].label("key")
    query = sa.select(key, known.label("known"), first.label("first"), pos.label("pos"))
    lacking = sa.or_(first > known + 1, sa.and_(first > known, sparse))
    return query.select_from(staged.outerjoin(state, same)).where(lacking, sa.not_(staged.c["_deleted"]))
