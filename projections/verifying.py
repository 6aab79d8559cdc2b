"""Verify: a live view must be what a recomputation from the whole log gives at the same offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projections.digest import digest_rows
from projections.environment import Environment
from projections.errors import ErasureWaiting
from projections.group import ERASURES, ProjectionGroup
from projections.log import OffsetRange
from projections.spark.bulk import WholeTables, whole_tables
from projections.spark.exchange import write
from projections.spark.failures import told_plainly
from projections.spark.view_functions import view_columns
from projections.tablestore.arrow import Target
from projections.tablestore.aside import read_set_aside
from projections.tablestore.comparison import DifferingRow, differing_rows
from projections.tablestore.layout import ViewLayout
from projections.tablestore.runs import Progress
from projections.tablestore.verification import drop_snapshot, take_snapshot
from projections.whole_log import from_the_beginning, require_inputs


@dataclass(frozen=True)
class ViewVerdict:
    """One view against its recomputation: rows, digests, some rows that differ, and their keys (tuples if composite).

    Of a differing row, ``one`` is the live view's, ``other`` the recomputed one. Rows are compared with their partial
    aggregates, of which digests know nothing.
    """

    rows: int
    recomputed_rows: int
    digest: str
    recomputed_digest: str
    differing_keys: tuple[Any, ...]
    differing: tuple[DifferingRow, ...]

    @property
    def equal(self) -> bool:
        """Whether every row agrees."""
        return self.digest == self.recomputed_digest and not self.differing


def verify(environment: Environment, group: ProjectionGroup) -> Mapping[str, ViewVerdict]:
    """Compare every view of the group with its recomputation at the run's own progress.

    The views and the progress are copied in one snapshot, so the run may go on meanwhile. Rows are compared in the
    database, digests computed as in ``projections.digest``. ErasureWaiting; the errors of `rebuild`.
    """
    store = environment.store
    require_inputs(environment, group)
    run, layout = store.serving(group, view_columns(environment.spark, group))
    progress = take_snapshot(store, layout, run)
    try:
        offsets = _log_up_to(environment, group, progress)
        schemas = environment.log.schemas(group.avro_changelogs)
        with store.transaction() as connection:
            aside = read_set_aside(connection, layout, before=progress)
        reduced = whole_tables(environment, group, offsets, schemas, aside=aside)
        with told_plainly(f"projection group {group.name}"), reduced as tables:
            verdicts = {view.name: _compare(environment, view, tables) for view in layout.views.values()}
    finally:
        drop_snapshot(store, layout)
    _require_none_waiting(environment, group, progress, verdicts)
    return verdicts


def _require_none_waiting(
    environment: Environment, group: ProjectionGroup, progress: Progress, verdicts: Mapping[str, ViewVerdict]
) -> None:
    """A recomputation shows each erasure at once, a live view when its runner has come to it."""
    if environment.keys is None or not group.personal or all(verdict.equal for verdict in verdicts.values()):
        return
    if environment.keys.erasures() > progress.get(ERASURES, {}).get(0, 0):
        raise ErasureWaiting(
            "a person was erased, and the views do not show it yet",
            remedy="let the runner catch up, then verify again",
            place=f"projection group {group.name}",
        )


def _log_up_to(environment: Environment, group: ProjectionGroup, progress: Progress) -> OffsetRange:
    with environment.log.open() as reader:
        return from_the_beginning(reader.beginning_offsets(list(group.inputs)), progress)


def _compare(environment: Environment, view: ViewLayout, whole: WholeTables) -> ViewVerdict:
    store, key = environment.store, view.definition.key
    again, live = store.target(view.recomputed_copy), store.target(view.live_copy)
    rows = sum(frame.count() for frame in whole.frames.values())
    write(whole.apply(view.definition, view.kept), again, rows=rows)
    digest, live_rows = view_digest(live, view)
    recomputed_digest, recomputed_rows = view_digest(again, view)
    differing = differing_rows(store, view.live_copy, view.recomputed_copy, key=key, columns=list(view.kept))
    keys = tuple(_bare(row) for row in differing)
    return ViewVerdict(live_rows, recomputed_rows, digest, recomputed_digest, keys, differing)


def _bare(row: DifferingRow) -> Any:
    values = tuple(row.key.values())
    return values[0] if len(values) == 1 else values


def view_digest(target: Target, view: ViewLayout) -> tuple[str, int]:
    """The digest and row count of a table of a view's columns, read in the order of its key."""
    return digest_rows(target.fetch(view.columns, order_by=view.definition.key))
