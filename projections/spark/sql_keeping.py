"""The tables of a SQL database, written by its own statements; Spark folds records and runs view functions."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from projections.connections import Connections
from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.logs.port import OpenLog
from projections.logs.set_aside import SetAside
from projections.spark.exchange import fetched, few_rows, in_table_order, read, write
from projections.spark.keeping import Comparison, Difference, Keeper, Rows, Verification
from projections.spark.live.incremental import LiveBatches
from projections.stores import comparison, dialects, horizon, retained, runs, verification
from projections.stores.aside import ensure_set_aside, note_late, note_set_aside, read_set_aside
from projections.stores.digest import digest_rows
from projections.stores.layout import GenerationLayout, ViewLayout
from projections.stores.port import DifferingRow
from projections.stores.runs import BUILT, Progress, Run, RunState
from projections.stores.sql import SqlTableStore

if TYPE_CHECKING:
    import sqlalchemy as sa
    from pyspark.sql import DataFrame

    from projections.spark.live.prepared import PreparedQueries
    from projections.stores.layout import TableLayout


class SqlKeeper(Keeper[GenerationLayout]):
    """Keeps the tables of a `SqlTableStore`."""

    def __init__(self, environment: Connections, store: SqlTableStore) -> None:
        self._environment = environment
        self._store = store

    def batches(
        self,
        log: OpenLog,
        group: ProjectionGroup,
        run: Run,
        layout: GenerationLayout,
        queries: PreparedQueries,
        *,
        views: bool = True,
    ) -> LiveBatches:
        """By staging tables and one short transaction."""
        layout = layout if views else dataclasses.replace(layout, views={})
        with self._store.transaction() as connection:
            ensure_set_aside(connection, layout)
            horizon.ensure(connection, layout, now=int(time.time()))
        return LiveBatches.of(self._environment, log, group, run, layout, queries)

    def load(self, frame: DataFrame, table: sa.Table, *, rows: int) -> int:  # type: ignore[override]
        """Append by Arrow."""
        return write(frame, self._store.target(table), rows=rows)

    def empty(self, table: sa.Table) -> None:  # type: ignore[override]
        """Truncate."""
        with self._store.transaction() as connection:
            dialects.empty(connection, [table])

    def stored(self, place: TableLayout, columns: Mapping[str, ColumnType], *, few: bool) -> DataFrame:  # type: ignore[override]
        """Few by the driver, many by the executors."""
        target = self._store.target(place.state)
        if few:
            return in_table_order(few_rows(self._environment.small, fetched(target, columns)), columns)
        return read(self._environment.spark, target, columns)

    def index(self, run: Run, layout: GenerationLayout, what: str, *, built: Mapping[str, Any]) -> None:
        """Add keys and indexes, and note it, in one transaction."""
        add = self._store.index_tables if what == "tables" else self._store.index_views
        with self._store.transaction() as connection:
            add(connection, layout)
            self._store.note(connection, run, built=built)

    def finish(self, run: Run, layout: GenerationLayout) -> None:
        """Let the database's planner know what was loaded first."""
        self._store.analyze(layout)
        self._store.record(run, status=BUILT)

    def set_aside(
        self, run: Run, layout: GenerationLayout, aside: SetAside, *, late: DataFrame | None = None, rows: int = 0
    ) -> None:
        """In the table that live batches use."""
        if late is not None and layout.retained is not None:
            self.empty(layout.retained.late)
            self.load(late, layout.retained.late, rows=rows)
        with self._store.transaction() as connection:
            runs.require_token(connection, run)
            ensure_set_aside(connection, layout)
            note_set_aside(connection, layout, aside)
            note_late(connection, layout)

    def noted(self, state: RunState, layout: GenerationLayout) -> SetAside:
        """In the same table."""
        with self._store.transaction() as connection:
            return read_set_aside(connection, layout, before=state.progress)

    @contextmanager
    def verification(self, run: Run, layout: GenerationLayout) -> Iterator[Verification]:
        """Copies that are taken in one snapshot."""
        progress = verification.take_snapshot(self._store, layout, run)
        try:
            yield _Snapshot(self._store, layout, progress)
        finally:
            verification.drop_snapshot(self._store, layout)

    @contextmanager
    def comparison(self, serving: Run, run: Run, layout: GenerationLayout) -> Iterator[Comparison]:
        """Copies of the serving views, which are taken in one snapshot."""
        try:
            yield _ServingCopies(self._store, serving, layout, comparison.common_columns(self._store, serving, layout))
        finally:
            comparison.drop_copies(self._store, layout)


@dataclass(frozen=True)
class _Snapshot:
    store: SqlTableStore
    layout: GenerationLayout
    progress: Progress

    def set_aside(self) -> SetAside:
        with self.store.transaction() as connection:
            return read_set_aside(connection, self.layout, before=self.progress)

    def compared(self, view: str, again: DataFrame, *, rows: int) -> Difference:
        place = self.layout.views[view]
        write(again, self.store.target(place.recomputed_copy), rows=rows)
        with self.store.transaction() as connection:
            retained.leave_out_of_copies(connection, self.layout, place)
        return _difference(self.store, place, place.recomputed_copy, list(place.stored_columns))


@dataclass(frozen=True)
class _ServingCopies:
    store: SqlTableStore
    serving: Run
    layout: GenerationLayout
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def take(self) -> Progress:
        return comparison.copy_serving(self.store, self.serving, self.layout, self.columns)

    def compared(self, view: str) -> Difference:
        place = self.layout.views[view]
        return _difference(self.store, place, place.view, self.columns[view])


def _difference(store: SqlTableStore, view: ViewLayout, other: sa.Table, columns: Sequence[str]) -> Difference:
    """The copied rows compared with another table of the view."""
    differing: tuple[DifferingRow, ...] = comparison.differing_rows(
        store, view.live_copy, other, key=view.definition.key, columns=columns
    )
    shown_columns = [column for column in columns if column in view.columns]  # a digest is of what is shown
    live, rest = (_digested(store, view, table, shown_columns) for table in (view.live_copy, other))
    return Difference(live, rest, differing)


def _digested(store: SqlTableStore, view: ViewLayout, table: sa.Table, columns: Sequence[str]) -> Rows:
    kinds = {column: view.columns[column] for column in columns}
    if any(kind.kind == "double" for kind in kinds.values()):
        return Rows(None, comparison.count(store, table))
    return Rows(*digest_rows(store.target(table).fetch(kinds, order_by=view.definition.key)))
