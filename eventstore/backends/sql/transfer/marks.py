"""Marks of archived streams in an export: each goes with the last event of its stream.

A mark thus says at which version it was made, and is made here only if the stream ends with the same event. Events
that an import adds to a stream remove a mark that was made before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, and_, case, delete, exists, select, tuple_

from eventstore.backends.sql.bound_values import bindable
from eventstore.backends.sql.database import Database
from eventstore.backends.sql.transfer.contents import EventRow
from eventstore.backends.sql.ways import upsert

Marks = dict[tuple[str, int], datetime]


def archived_at(events: Table, archived: Table) -> ColumnElement[datetime]:
    """Since when a stream is archived, in the row of its last event, else null; `archived` is joined by its stream."""
    is_last = and_(archived.c.time.is_not(None), ~_later(events))
    return case((is_last, archived.c.time)).label("archived")


class MarkTransfer:
    """Makes the marks of a file's streams in the store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._events = database.tables.events
        self._archived, self._snapshots = database.tables.archived_streams, database.tables.snapshots

    def take(self, batch: Sequence[EventRow], new: Sequence[EventRow]) -> int:
        """Archive the streams that a batch ends; `new` are its events that were not here. Returns how many are new."""
        marks = {(str(row.stream), row.version): row.archived for row in batch if row.archived is not None}
        if not marks and not new:
            return 0
        with self._database.writing() as connection:
            self._take_out(connection, sorted({str(row.stream) for row in new}))
            return sum(self._make(connection, marks, places) for places in bindable(list(marks)))

    def _take_out(self, connection: Connection, streams: Sequence[str]) -> None:
        for part in bindable(streams):
            connection.execute(delete(self._archived).where(self._archived.c.stream.in_(part)))

    def _make(self, connection: Connection, marks: Marks, places: Sequence[tuple[str, int]]) -> int:
        columns = self._events.c
        query = select(columns.stream, columns.version).where(
            tuple_(columns.stream, columns.version).in_(places), ~_later(self._events)
        )
        # A deletion waits until the mark is there, and takes it away.
        ending = connection.execute(query.with_for_update(read=True, key_share=True)).all()
        if not ending:
            return 0
        rows = [{"stream": stream, "time": marks[stream, version]} for stream, version in ending]
        insert = upsert(connection, self._archived).values(rows).on_conflict_do_nothing()
        made = connection.execute(insert, execution_options={"preserve_rowcount": True})
        connection.execute(delete(self._snapshots).where(self._snapshots.c.stream.in_([row["stream"] for row in rows])))
        return made.rowcount


def _later(events: Table) -> ColumnElement[bool]:
    later = events.alias("next")
    return exists().where(later.c.stream == events.c.stream, later.c.version == events.c.version + 1)
