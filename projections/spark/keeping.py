"""The tables of a SQL database, written by its own statements; Spark folds records and runs view functions."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from projections.connections import Connections
from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.logs.port import OpenLog
from projections.logs.set_aside import SetAside
from projections.spark.exchange import fetched, few_rows, in_table_order, read, write
from projections.spark.live.incremental import LiveBatches
from projections.stores import dialects, forgetting, runs
from projections.stores.aside import ensure_set_aside, note_late, note_set_aside, read_set_aside
from projections.stores.comparison import Copies, common_columns
from projections.stores.layout import GenerationLayout, TableLayout, generation_name
from projections.stores.runs import BUILT, Run, RunState
from projections.stores.sql import TableStore

if TYPE_CHECKING:
    import sqlalchemy as sa
    from pyspark.sql import DataFrame

    from projections.spark.live.prepared import PreparedQueries


class Keeper:
    """Loads, keeps and compares the tables of a store by Spark."""

    def __init__(self, environment: Connections, store: TableStore) -> None:
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
        """Return the live batches of a run that we hold, those of its tables alone without ``views``.

        ``log`` and ``queries`` are the caller's to close.
        """
        layout = layout if views else dataclasses.replace(layout, views={})
        with self._store.transaction() as connection:
            ensure_set_aside(connection, layout)
            forgetting.ensure(connection, layout, now=int(time.time()))
        return LiveBatches.of(self._environment, log, group, run, layout, queries)

    def load(self, frame: DataFrame, table: sa.Table, *, rows: int) -> int:
        """Load rows into a table that has no readers yet, and return how many, of at most ``rows``."""
        return write(frame, self._store.target(table), rows=rows)

    def empty(self, table: sa.Table) -> None:
        """Remove what a killed process loaded into a table."""
        with self._store.transaction() as connection:
            dialects.empty(connection, [table])

    def stored(self, place: TableLayout, columns: Mapping[str, ColumnType], *, few: bool) -> DataFrame:
        """Return the rows of a table's state: ``few`` by the driver, many by the executors."""
        target = self._store.target(place.state)
        if few:
            return in_table_order(few_rows(self._environment.small, fetched(target, columns)), columns)
        return read(self._environment.spark, target, columns)

    def index(self, run: Run, layout: GenerationLayout, what: str, *, built: Mapping[str, Any]) -> None:
        """Give the loaded "tables" or "views" keys and indexes, and note it, in one transaction; KeyNotUnique."""
        add = self._store.index_tables if what == "tables" else self._store.index_views
        with self._store.transaction() as connection:
            add(connection, layout)
            self._store.record(run, built=built, within=connection)

    def finish(self, run: Run, layout: GenerationLayout) -> None:
        """Let the database's planner know what was loaded, and note that a generation is complete."""
        self._store.analyze(layout)
        self._store.record(run, status=BUILT)

    def set_aside(
        self, run: Run, layout: GenerationLayout, aside: SetAside, *, late: DataFrame | None = None, rows: int = 0
    ) -> None:
        """Note the records that the first chunk of a build, of ``rows`` records, is folded without, late ones too."""
        if late is not None and layout.retained is not None:
            self.empty(layout.retained.late)
            self.load(late, layout.retained.late, rows=rows)
        with self._store.transaction() as connection:
            runs.require_token(connection, run)
            ensure_set_aside(connection, layout)
            note_set_aside(connection, layout, aside)
            note_late(connection, layout)

    def noted(self, state: RunState, layout: GenerationLayout) -> SetAside:
        """Return the records that a generation was made without until now, under any holder."""
        with self._store.transaction() as connection:
            return read_set_aside(connection, layout, before=state.progress)

    @contextmanager
    def copies(self, run: Run, layout: GenerationLayout, *, changed: bool = False) -> Iterator[Copies]:
        """Copies that are taken in one snapshot. Of another generation's views they have the common columns.

        So they do of views whose definition has ``changed`` since the generation was built.
        """
        is_own = layout.name == generation_name(run.group, run.generation) and not changed
        columns = {name: tuple(view.stored_columns) for name, view in layout.views.items()}
        copies = Copies(self._store, run, layout, columns if is_own else common_columns(self._store, run, layout))
        try:
            yield copies
        finally:
            copies.drop()
