"""Verify: is the live view what a recomputation from the whole log gives, at the same offsets?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from eventstore.kafka.admin import OffsetReader
from eventstore.kafka.schemas import read_schemas
from projections.digest import digest_rows
from projections.environment import Environment
from projections.group import ProjectionGroup
from projections.spark.bulk import apply_view, reduce_topics
from projections.spark.exchange import in_table_order, write
from projections.spark.failures import told_plainly
from projections.spark.kafka_source import OffsetRange
from projections.spark.view_functions import view_columns
from projections.tablestore import arrow, runs
from projections.tablestore.arrow import Target
from projections.tablestore.layout import GenerationLayout, ViewLayout
from projections.views import View

_SAMPLE = 5


@dataclass(frozen=True)
class ViewVerdict:
    """One view against its recomputation: rows, digests, and the keys of some rows that differ."""

    rows: int
    recomputed_rows: int
    digest: str
    recomputed_digest: str
    differing_keys: tuple[Any, ...]

    @property
    def equal(self) -> bool:
        """Whether every row agrees."""
        return self.digest == self.recomputed_digest and not self.differing_keys


def verify(environment: Environment, group: ProjectionGroup) -> Mapping[str, ViewVerdict]:
    """Compare every view of the group with its recomputation at the run's own progress.

    The views and the progress are copied in one snapshot, so the run may go on meanwhile. Rows are compared in the
    database, digests computed as in ``projections.digest``.
    """
    columns = view_columns(environment.spark, group)
    run, layout = environment.store.serving(group, columns)
    progress = _snapshot(environment, layout, run)
    try:
        frames = _recompute(environment, group, progress)
        with told_plainly(f"projection group {group.name}"):
            return {view.name: _compare(environment, layout, view, frames) for view in group.views}
    finally:
        _drop(environment, layout)


def _live(layout: ViewLayout) -> str:
    return f"verify_live_{layout.view.name.removeprefix('view_')}"


def _recomputed(layout: ViewLayout) -> str:
    return f"verify_again_{layout.view.name.removeprefix('view_')}"


def _quoted(layout: GenerationLayout, table: str) -> str:
    return f'"{layout.schema}"."{table}"'


def _snapshot(environment: Environment, layout: GenerationLayout, run: runs.Run) -> runs.Progress:
    """Copy the views and read the progress as of one moment; the copies are dropped at the end."""
    _drop(environment, layout)
    with environment.store.transaction() as connection:
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        for view in layout.views.values():
            source = _quoted(layout, view.view.name)
            copy = _quoted(layout, _live(view))
            connection.execute(sa.text(f"CREATE UNLOGGED TABLE {copy} AS SELECT * FROM {source}"))  # noqa: S608
            again = _quoted(layout, _recomputed(view))
            connection.execute(sa.text(f"CREATE UNLOGGED TABLE {again} AS SELECT * FROM {source} LIMIT 0"))  # noqa: S608
        return runs.read_progress(connection, run)


def _recompute(environment: Environment, group: ProjectionGroup, progress: runs.Progress) -> Mapping[str, Any]:
    with OffsetReader(environment.settings) as reader:
        offsets = OffsetRange(reader.beginning_offsets(list(group.topics)), progress)
    return reduce_topics(environment, group, offsets, read_schemas(environment.settings))


def _compare(environment: Environment, layout: GenerationLayout, view: View, frames: Mapping[str, Any]) -> ViewVerdict:
    tables = layout.views[view.name]
    uri = environment.store.uri
    again, live = (Target(uri, layout.schema, name) for name in (_recomputed(tables), _live(tables)))
    result = in_table_order(apply_view(view, frames), tables.columns)
    rows = frames[view.root].count()
    write(result, again, rows=rows, marked=False)
    digest, live_rows = view_digest(live, tables)
    recomputed_digest, recomputed_rows = view_digest(again, tables)
    differing = _differing(environment, live, again, tables)
    return ViewVerdict(live_rows, recomputed_rows, digest, recomputed_digest, differing)


def view_digest(target: Target, view: ViewLayout) -> tuple[str, int]:
    """The digest and row count of a table of a view's columns, read in the order of its key."""
    query = arrow.select(target, view.columns, order_by=view.key)
    return digest_rows(arrow.fetch(target.uri, query, view.columns))


def _differing(environment: Environment, live: Target, again: Target, view: ViewLayout) -> tuple[Any, ...]:
    """Keys of some rows that only one side has, or that differ."""
    only = " UNION ALL ".join(
        f'(SELECT "{view.key}" FROM (TABLE {a.relation} EXCEPT ALL TABLE {b.relation}) AS d LIMIT {_SAMPLE})'  # noqa: S608
        for a, b in ((live, again), (again, live))
    )
    with environment.store.transaction() as connection:
        return tuple(dict.fromkeys(connection.scalars(sa.text(only))))


def _drop(environment: Environment, layout: GenerationLayout) -> None:
    with environment.store.transaction() as connection:
        for view in layout.views.values():
            for table in (_live(view), _recomputed(view)):
                connection.execute(sa.text(f"DROP TABLE IF EXISTS {_quoted(layout, table)}"))
