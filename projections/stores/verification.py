"""What verify asks of the database: copies of the views as of one moment."""

from __future__ import annotations

import sqlalchemy as sa

from projections.stores import runs
from projections.stores.layout import GenerationLayout, ViewLayout
from projections.stores.sql import SqlTableStore


def take_snapshot(store: SqlTableStore, layout: GenerationLayout, run: runs.Run) -> runs.Progress:
    """Copy the views and read the progress as of one moment; ``drop_snapshot`` removes the copies."""
    drop_snapshot(store, layout)
    with store.snapshot() as connection:
        for view in layout.views.values():
            _copy(connection, view)
        return runs.read_progress(connection, run)


def _copy(connection: sa.Connection, view: ViewLayout) -> None:
    for copy in (view.live_copy, view.recomputed_copy):
        copy.create(connection)
    columns = list(view.stored_columns)
    rows = sa.select(*(view.view.c[c] for c in columns))
    connection.execute(sa.insert(view.live_copy).from_select(columns, rows))


def drop_snapshot(store: SqlTableStore, layout: GenerationLayout) -> None:
    """Remove what ``take_snapshot`` made, or what a killed verify left."""
    with store.transaction() as connection:
        for view in layout.views.values():
            for copy in (view.live_copy, view.recomputed_copy):
                connection.execute(sa.schema.DropTable(copy, if_exists=True))
