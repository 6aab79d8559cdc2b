"""Aggregate snapshots as rows: one a stream, replaced by newer ones."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, or_, select

from eventstore.backends.sql.database import Database
from eventstore.backends.sql.values import bindable
from eventstore.backends.sql.ways import upsert
from eventstore.fields.serialization import schema_id_of
from eventstore.snapshots import AggregateSnapshot


class SqlSnapshots:
    """The table `snapshots`; a reader of it needs no fence, the stream itself says what came after."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = database.tables.snapshots

    def find(self, stream: str) -> AggregateSnapshot | None:
        """Return a stream's snapshot, None without one."""
        columns = self._table.c
        query = select(columns.stream, columns.version, columns.payload).where(columns.stream == stream)
        with self._database.statement() as connection:
            row = connection.execute(query).first()
        return None if row is None else AggregateSnapshot(row.stream, row.version, row.payload)

    def drop(self, streams: Sequence[str]) -> int:
        """Forget the snapshots of streams; return how many there were."""
        with self._database.writing() as connection:
            self._database.dialect.overwrite_deleted(connection)
            parts = [delete(self._table).where(self._table.c.stream.in_(part)) for part in bindable(streams)]
            return sum(connection.execute(part).rowcount for part in parts)

    def keep(self, snapshot: AggregateSnapshot) -> None:
        """Insert, or replace what is older or of another shape: two releases of a service may run side by side."""
        values = {
            "stream": snapshot.stream,
            "version": snapshot.version,
            "shape": schema_id_of(snapshot.payload),
            "payload": snapshot.payload,
        }
        columns = self._table.c
        with self._database.writing() as connection:
            statement = upsert(connection, self._table).values(values)
            new = statement.excluded
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["stream"],
                    set_={name: new[name] for name in values if name != "stream"},
                    where=or_(columns.version < new.version, columns.shape != new.shape),
                )
            )
