"""What verify asks of the database: copies of the views as of one moment, and the keys that differ."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from projections.tablestore import runs
from projections.tablestore.arrow import Target
from projections.tablestore.layout import GenerationLayout, ViewLayout
from projections.tablestore.postgres import PostgresTableStore

_SAMPLE = 5


def live_copy(store: PostgresTableStore, layout: GenerationLayout, view: ViewLayout) -> Target:
    """The table that holds a view's rows as of the snapshot."""
    return Target(store.uri, layout.schema, f"verify_live_{_name(view)}")


def recomputed_copy(store: PostgresTableStore, layout: GenerationLayout, view: ViewLayout) -> Target:
    """The empty table of the same columns that takes the recomputed rows."""
    return Target(store.uri, layout.schema, f"verify_again_{_name(view)}")


def _name(view: ViewLayout) -> str:
    return view.view.name.removeprefix("view_")


def take_snapshot(store: PostgresTableStore, layout: GenerationLayout, run: runs.Run) -> runs.Progress:
    """Copy the views and read the progress as of one moment; ``drop_snapshot`` removes the copies."""
    drop_snapshot(store, layout)
    with store.transaction() as connection:
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        for view in layout.views.values():
            source = Target(store.uri, layout.schema, view.view.name)
            _copy(connection, source, live_copy(store, layout, view), rows="ALL")
            _copy(connection, source, recomputed_copy(store, layout, view), rows="0")
        return runs.read_progress(connection, run)


def _copy(connection: sa.Connection, source: Target, copy: Target, *, rows: str) -> None:
    statement = f"CREATE UNLOGGED TABLE {copy.relation} AS SELECT * FROM {source.relation} LIMIT {rows}"  # noqa: S608
    connection.execute(sa.text(statement))


def drop_snapshot(store: PostgresTableStore, layout: GenerationLayout) -> None:
    """Remove what ``take_snapshot`` made, or what a killed verify left."""
    with store.transaction() as connection:
        for view in layout.views.values():
            for copy in (live_copy(store, layout, view), recomputed_copy(store, layout, view)):
                connection.execute(sa.text(f"DROP TABLE IF EXISTS {copy.relation}"))


def differing_keys(store: PostgresTableStore, one: Target, other: Target, *, key: str) -> tuple[Any, ...]:
    """Keys of some rows that only one of two tables has, or that differ: at most five from each side."""
    only = " UNION ALL ".join(
        f'(SELECT "{key}" FROM (TABLE {a.relation} EXCEPT ALL TABLE {b.relation}) AS d LIMIT {_SAMPLE})'  # noqa: S608
        for a, b in ((one, other), (other, one))
    )
    with store.transaction() as connection:
        return tuple(dict.fromkeys(connection.scalars(sa.text(only))))
