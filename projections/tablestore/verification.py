"""What verify asks of the database: copies of the views as of one moment, and the keys that differ."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from projections.tablestore import runs
from projections.tablestore.arrow import Target
from projections.tablestore.layout import GenerationLayout, ViewLayout
from projections.tablestore.sql import SqlTableStore

_SAMPLE = 5


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
    columns = list(view.columns)
    rows = sa.select(*(view.view.c[c] for c in columns))
    connection.execute(sa.insert(view.live_copy).from_select(columns, rows))


def drop_snapshot(store: SqlTableStore, layout: GenerationLayout) -> None:
    """Remove what ``take_snapshot`` made, or what a killed verify left."""
    with store.transaction() as connection:
        for view in layout.views.values():
            for copy in (view.live_copy, view.recomputed_copy):
                connection.execute(sa.schema.DropTable(copy, if_exists=True))


def differing_keys(store: SqlTableStore, one: Target, other: Target, *, key: tuple[str, ...]) -> tuple[Any, ...]:
    """Keys of some rows that only one of two tables has, or that differ: at most five from each side.

    A key of several columns is a tuple.
    """
    names = ", ".join(f'"{column}"' for column in key)
    only = " UNION ALL ".join(
        f"SELECT {names} FROM (SELECT {names} FROM"  # noqa: S608
        f" (SELECT * FROM {a.relation} {store.minus} SELECT * FROM {b.relation}) AS d LIMIT {_SAMPLE}) AS s"
        for a, b in ((one, other), (other, one))
    )
    with store.transaction() as connection:
        rows = connection.execute(sa.text(only)).all()
    return tuple(dict.fromkeys(row[0] if len(key) == 1 else tuple(row) for row in rows))
