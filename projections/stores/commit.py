"""The short transaction of a batch: state, views and progress move together, and Spark has no part in it."""

from __future__ import annotations

import time

import sqlalchemy as sa

from eventstore.backends.sql.ways import upsert
from projections.stores import dialects, horizon
from projections.stores.finals import note_late
from projections.stores.handing_over import hand_over_batch
from projections.stores.layout import POSITION, GenerationLayout, TableLayout, ViewLayout
from projections.stores.runs import Progress, Run, advance
from projections.stores.staging import require_mark

# Without a condition SQLite's parser would take ON CONFLICT for that of a join.
_CLEAR = sa.true()


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
    horizon.note_staged(connection, layout, now=int(time.time()))
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
