"""The tables of a Delta store, written by Spark alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from projections.connections import Connections
from projections.declaring.columns import ColumnType
from projections.declaring.group import ProjectionGroup
from projections.logs.port import OpenLog
from projections.logs.set_aside import SetAside
from projections.spark.exchange import in_table_order
from projections.spark.keeping import Comparison, Keeper, Verification
from projections.spark.lakehouse.aside import merge_set_aside
from projections.spark.lakehouse.batches import DeltaBatches
from projections.spark.lakehouse.comparing import LiveViews, ServingViews
from projections.spark.lakehouse.differences import require_unique
from projections.spark.lakehouse.horizon import ensure, replace_state
from projections.spark.lakehouse.places import DeltaGeneration, StatePlace
from projections.spark.lakehouse.store import DeltaTableStore
from projections.spark.lakehouse.versioned import VersionedTable
from projections.spark.reading.inputs import Reduction
from projections.stores.runs import BUILT, Run, RunState, superseded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from projections.spark.lakehouse.ledger import Entry
    from projections.spark.live.prepared import PreparedQueries


class DeltaKeeper(Keeper[DeltaGeneration]):
    """Keeps the tables of a `DeltaTableStore`."""

    def __init__(self, environment: Connections, store: DeltaTableStore) -> None:
        self._environment = environment
        self._store = store

    def batches(
        self,
        log: OpenLog,
        group: ProjectionGroup,
        run: Run,
        layout: DeltaGeneration,
        queries: PreparedQueries,
        *,
        views: bool = True,
    ) -> DeltaBatches:
        """By joins with the stored tables, a merge a table, and the ledger's row."""
        registry = self._environment.log.schemas(group.avro_changelogs)
        self._ensure_times(run, layout)
        return DeltaBatches(
            environment=self._environment, store=self._store, log=log, group=group, run=run, layout=layout,
            reduction=Reduction(registry), views=views,
        )  # fmt: skip

    def load(self, frame: DataFrame, table: VersionedTable, *, rows: int) -> int:  # type: ignore[override]
        """Make the rows all of the table: what a killed process left goes."""
        return table.count(replace_state(table, frame) if "_deleted" in frame.columns else table.replace(frame))

    def empty(self, table: VersionedTable) -> None:  # type: ignore[override]
        """Nothing: loading replaces all there is."""

    def stored(self, place: StatePlace, columns: Mapping[str, ColumnType], *, few: bool) -> DataFrame:  # type: ignore[override]
        """The newest version: a generation that is being built has one writer."""
        return in_table_order(place.state.rows(place.state.version()), columns)

    def index(self, run: Run, layout: DeltaGeneration, what: str, *, built: Mapping[str, Any]) -> None:
        """Delta has no keys: those of views are looked at once, those of the state are what it was grouped by.

        Nothing is noted, since nothing is made that another process would have to make again.
        """
        tables = self._entry(run).tables
        for place in layout.views.values() if what == "views" else ():
            require_unique(place, place.view.rows(tables[place.view.name]))

    def finish(self, run: Run, layout: DeltaGeneration) -> None:
        """Note that it is complete."""
        self._store.record(run, status=BUILT)

    def set_aside(
        self, run: Run, layout: DeltaGeneration, aside: SetAside, *, late: DataFrame | None = None, rows: int = 0
    ) -> None:
        """In the table that live batches use; none come late, as no stream has a promise here."""
        if aside:
            at = self._entry(run).tables.get(layout.aside.name)
            self._store.pin(run, {layout.aside.name: merge_set_aside(layout.aside, aside, at=at)})

    def noted(self, state: RunState, layout: DeltaGeneration) -> SetAside:
        """In the same table."""
        return LiveViews(layout, self._entry(state.run)).set_aside()

    @contextmanager
    def verification(self, run: Run, layout: DeltaGeneration) -> Iterator[Verification]:
        """The versions that the ledger names now."""
        yield LiveViews(layout, self._entry(run))

    @contextmanager
    def comparison(self, serving: Run, run: Run, layout: DeltaGeneration) -> Iterator[Comparison]:
        """The versions that the ledger names when they are taken."""
        yield ServingViews(self._store, serving, run, layout)

    def _ensure_times(self, run: Run, layout: DeltaGeneration) -> None:
        """For a generation that was built before deleted rows had a horizon here."""
        tables = self._entry(run).tables
        places = [place for place in layout.tables.values() if place.state.name in tables]
        ensured = {place.state.name: ensure(place, at=tables[place.state.name]) for place in places}
        if versions := {name: version for name, version in ensured.items() if version is not None}:
            self._store.pin(run, versions)

    def _entry(self, run: Run) -> Entry:
        entry = self._store.entry(run)
        if entry is None:
            raise superseded(run)
        return entry
