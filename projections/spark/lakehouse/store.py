"""The table store on Delta Lake: a folder a generation, on any Hadoop path, and a ledger a group."""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventstore.shown_urls import shown_url
from projections.declaring.group import ProjectionGroup
from projections.declaring.naming import IDENTIFIER
from projections.declaring.partials import shown
from projections.errors import TableStoreUnavailable
from projections.logs.batch_size import BatchSize
from projections.logs.ranges import filled
from projections.spark.exchange import are_few
from projections.spark.hadoop_folders import LOCAL, folders_in, remove_folder, spelled
from projections.spark.lakehouse import horizon
from projections.spark.lakehouse.ledger import Entries, Entry, Ledger
from projections.spark.lakehouse.numbered_files import numbered_files
from projections.spark.lakehouse.places import (
    HORIZON,
    SET_ASIDE,
    DeltaGeneration,
    DeltaViewPlace,
    StatePlace,
    require_storable,
    state_name,
    view_name,
)
from projections.spark.lakehouse.versioned import VersionedTable
from projections.spark.session import ONE_TASK, has_delta_lake
from projections.stores.horizon import Passed
from projections.stores.port import TableStore, ViewColumns
from projections.stores.role_files import RoleFiles, own_folder
from projections.stores.runs import (
    BUILDING,
    BUILT,
    RETIRED,
    SERVING,
    Progress,
    Run,
    RunState,
    is_ahead,
    serving_of,
    superseded,
    this_process,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Five tables and a view take some seconds, however few rows they are of: it should be a small part of a batch.
_BATCH_SECONDS: Final = 30.0
_SMALL_BATCHES: Final = ONE_TASK | {
    # Delta copies each row that it reads from a file with deletion vectors, unless the code around it is compiled.
    "spark.sql.codegen.wholeStage": "true",
    # Spark describes every plan to its listeners, by default at length. There are no listeners.
    "spark.sql.ui.explainMode": "simple",
    # The source of a merge is computed before: it may be read twice, which saves a job that copies it.
    "spark.databricks.delta.merge.materializeSource": "none",
}


class DeltaTableStore(TableStore[DeltaGeneration]):
    """State and views of projection groups in one folder; ``url`` is `delta:` and a path or a Hadoop URI.

    TableStoreUnavailable where the session has no Delta Lake.
    """

    def __init__(self, spark: SparkSession, url: str) -> None:
        if not has_delta_lake(spark):
            raise TableStoreUnavailable(
                "this Spark session has no Delta Lake",
                remedy="give its jars when the session is opened: jars=[*spark_jars(), *delta_jars()]",
                place=shown_url(url),
            )
        self.root = spelled(url.removeprefix("delta:"))
        self.spark = spark.newSession()
        self._large = spark.newSession()
        # Broadcasts stay: a batch of few rows is sent to every task that reads the rows to compare.
        for name, value in _SMALL_BATCHES.items():
            self.spark.conf.set(name, value)
        self._ledgers: dict[str, Ledger] = {}
        self._passed: tuple[tuple[str, int | None], Mapping[str, Passed]] = (("", None), {})

    @property
    def place(self) -> str:
        """The URL, without what opens it."""
        return shown_url(f"delta:{self.root.removeprefix(LOCAL)}")

    def prepare(self) -> None:
        """Nothing: a ledger is made with its first row."""

    def close(self) -> None:
        """Nothing is open; the session ends with its Spark."""

    def check_master(self, master: str) -> None:
        """Any: executors reach what Hadoop reaches, and a path of this machine where it is theirs too."""

    def session(self, records: int) -> SparkSession:
        """A session for a batch of so many records."""
        return self.spark if are_few(records) else self._large

    def exclusive(self, group: str, *, role: str) -> AbstractContextManager[None]:
        """Hold a role of a group by a lock of this machine; on others, the run's token is what keeps two apart."""
        return self._roles().exclusive(group, role=role)

    def is_held(self, group: str, *, role: str) -> bool:
        """Whether a process of this machine holds a role of a group."""
        return self._roles().is_held(group, role=role)

    def _roles(self) -> RoleFiles:
        if self.root.startswith(LOCAL):
            folder = Path(self.root.removeprefix(LOCAL)) / "_locks"
        else:
            digest = hashlib.sha256(self.root.encode()).hexdigest()[:16]
            folder = own_folder() / digest
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return RoleFiles(f"{folder}/lock")

    def states(self, group: str | None = None, *statuses: str) -> list[RunState]:
        """The rows of a group's generations, or of all groups', in the order of their numbers."""
        names = self._groups() if group is None else [group]
        every = [entry.state for name in names for entry in self._ledger(name).entries().values()]
        return [state for state in every if not statuses or state.status in statuses]

    def _groups(self) -> list[str]:
        return [name for name in folders_in(self.spark, self.root) if IDENTIFIER.fullmatch(name)]

    def state(self, run: Run) -> RunState | None:
        """The row of a generation; None where it was dropped."""
        entry = self.entry(run)
        return None if entry is None else entry.state

    def entry(self, run: Run) -> Entry | None:
        """The row of a generation with the versions of its tables; None where it was dropped."""
        return self._ledger(run.group).entries().get(run.generation)

    def claim(self, run: Run) -> Run:
        """Take the run over: any other holder's next commit fails."""
        ours = Run(run.group, run.generation, run.fingerprint, uuid.uuid4().hex, run.version)
        self._alter(run, lambda entry: entry.changed(run=ours, holder=this_process()))
        return ours

    def record(
        self,
        run: Run,
        *,
        built: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        status: str | None = None,
    ) -> None:
        """Note what has become of a run we hold; tables that are loaded for the first time count from here on."""
        given = {"built": built, "progress": progress, "status": status}
        values = {name: value for name, value in given.items() if value is not None}

        def noted(entry: Entry) -> Entry:
            _require_token(entry, run)
            loaded = [
                *map(state_name, (built or {}).get("tables", ())),
                *map(view_name, (built or {}).get("views", ())),
            ]
            new = {name: self.table(run, name).version() for name in loaded if name not in entry.tables}
            return entry.changed(tables={**entry.tables, **new}, **values)

        self._alter(run, noted)

    def advance(
        self, run: Run, *, start: Progress, end: Progress, tables: Mapping[str, int], base: Mapping[str, int]
    ) -> None:
        """The commit of a batch: progress from ``start`` to ``end``, and the new versions of the tables it changes.

        RunSuperseded, and nothing is changed, where the token, the progress or the versions of ``base`` are not ours.
        """

        def advanced(entry: Entry) -> Entry:
            require_at(entry, run, start)
            if entry.tables != base:
                raise superseded(run)
            return entry.changed(progress=end, tables={**entry.tables, **tables})

        self._alter(run, advanced)

    def pin(self, run: Run, tables: Mapping[str, int]) -> None:
        """Let versions of tables count for a run we hold; RunSuperseded."""

        def pinned(entry: Entry) -> Entry:
            _require_token(entry, run)
            return entry.changed(tables={**entry.tables, **tables})

        self._alter(run, pinned)

    def set_paused(self, group: str, *, paused: bool) -> Run:
        """Ask the serving run's runner to stand still, or to go on; NoServingGeneration."""

        def asked(entries: Entries) -> Entries:
            run = _serving(entries, group)
            return {**entries, run.generation: entries[run.generation].changed(paused=paused)}

        return _serving(self._ledger(group).change(asked), group)

    def set_held(self, run: Run, *, held: bool) -> None:
        """Ask a run's runner to wait for a cut-over; it counts only while the group has a rebuilder."""
        self._alter(run, lambda entry: entry.changed(held=held))

    def layout(self, group: ProjectionGroup, run: Run, view_columns: ViewColumns) -> DeltaGeneration:
        """The tables of a generation; InvalidDefinition for a group that cannot be stored in Delta."""
        require_storable(group)
        group = group.resolved(view_columns)
        tables = {n: StatePlace(table, self.table(run, state_name(n))) for n, table in group.tables.items()}
        views = {
            view.name: DeltaViewPlace(view, shown(view_columns[view.name]), self.table(run, view_name(view.name)))
            for view in group.all_views
        }
        return DeltaGeneration(run.place, tables, views, self.table(run, SET_ASIDE), self.table(run, HORIZON))

    def table(self, run: Run, name: str) -> VersionedTable:
        """A table of a generation."""
        return VersionedTable(self.spark, f"{self._folder(run)}/{name}", name)

    def _folder(self, run: Run) -> str:
        return f"{self.root}/{run.group}/{run.generation}"

    def begin_generation(self, group: ProjectionGroup, view_columns: ViewColumns) -> tuple[Run, DeltaGeneration]:
        """Note a new generation, whose tables are made as they are loaded; those that never served are removed."""
        require_storable(group)
        removed: list[Run] = []

        def begun(entries: Entries) -> Entries:
            removed[:] = [e.run for e in entries.values() if e.state.status in (BUILDING, BUILT)]
            number = max(entries, default=0) + 1
            run = Run(group.name, number, group.fingerprint(), uuid.uuid4().hex, group.version)
            state = RunState(run, BUILDING, {}, False, False, this_process(), {}, None)
            remaining = {n: entry for n, entry in entries.items() if entry.run not in removed}
            return {**remaining, number: Entry(state, {}).changed()}

        entries = self._ledger(group.name).change(begun)
        run = entries[max(entries)].run
        for unfinished in [*removed, run]:
            self._remove_folder(unfinished)
        return run, self.layout(group, run, view_columns)

    def switch(
        self, group: ProjectionGroup, run: Run, layout: DeltaGeneration, *, recreated: Progress | None = None
    ) -> bool:
        """Let a generation serve, in one commit to the ledger, unless readers would go back in time."""
        switched = True

        def served(entries: Entries) -> Entries:
            nonlocal switched
            ours = _require_token(entries.get(run.generation), run)
            previous = {n: e for n, e in entries.items() if n != run.generation and e.state.status == SERVING}
            switched = all(
                is_ahead(ours.state.progress, e.state.progress, recreated=recreated) for e in previous.values()
            )
            if not switched:
                return entries
            retired = {n: e.changed(status=RETIRED, paused=False, held=False) for n, e in previous.items()}
            paused = any(e.state.paused for e in previous.values())
            return {**entries, **retired, run.generation: ours.changed(status=SERVING, paused=paused)}

        self._ledger(group.name).change(served)
        return switched

    def forget(self, run: Run) -> None:
        """Drop a generation's row, and then its folder."""
        self._ledger(run.group).change(lambda entries: {n: e for n, e in entries.items() if n != run.generation})
        self._remove_folder(run)

    @property
    def batch_size(self) -> BatchSize:
        """Larger ones than in a database: the first row of a batch costs as much as the next thousands."""
        return BatchSize(target=_BATCH_SECONDS)

    @property
    def look_seconds(self) -> float:
        """An hour: a look is a query a table, of half a second, whatever it finds."""
        return 3_600.0

    def let_go(self, run: Run, layout: DeltaGeneration, *, before: int, most: int) -> Mapping[str, int]:
        """All that are due: a write takes seconds, however little it writes."""
        entry = _require_token(self.entry(run), run)
        tables, passed = dict[str, int](), self.passed(run, entry)
        newly_passed = {}
        for name, place in layout.tables.items():
            if result := horizon.let_go(place, at=entry.tables[place.state.name], before=before):
                tables[place.state.name], newly_passed[name] = result
        if newly_passed:
            known = {name: passed.get(name, Passed()).and_then(one) for name, one in newly_passed.items()}
            tables[HORIZON] = horizon.write_passed(layout.horizon, known, at=entry.tables.get(HORIZON))
            self.pin(run, tables)
        return {name: one.settled for name, one in newly_passed.items()}

    def passed(self, run: Run, entry: Entry) -> Mapping[str, Passed]:
        """How far the tables of a run have lost deleted rows, by their names."""
        at = entry.tables.get(HORIZON)
        if self._passed[0] != (run.place, at):
            self._passed = (run.place, at), horizon.read_passed(self.table(run, HORIZON), at=at)
        return self._passed[1]

    def settled(self, run: Run) -> Mapping[str, int]:
        """As the generation has counted them."""
        entry = self.entry(run)
        return {} if entry is None else {name: one.settled for name, one in self.passed(run, entry).items()}

    def _remove_folder(self, run: Run) -> None:
        remove_folder(self.spark, self._folder(run))
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]  # noqa: SLF001
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._roles().file(run.group, str(run.generation)))

    def _ledger(self, group: str) -> Ledger:
        if group not in self._ledgers:
            self._ledgers[group] = Ledger(numbered_files(self.spark, f"{self.root}/{group}/runs"), group)
        return self._ledgers[group]

    def _alter(self, run: Run, alter: Callable[[Entry], Entry]) -> None:
        def altered(entries: Entries) -> Entries:
            if run.generation not in entries:
                raise superseded(run)
            return {**entries, run.generation: alter(entries[run.generation])}

        self._ledger(run.group).change(altered)


def require_at(entry: Entry | None, run: Run, start: Progress) -> Entry:
    """The row, which has our token and stands at ``start``; RunSuperseded."""
    current = _require_token(entry, run)
    if filled(current.state.progress, start) != start:
        raise superseded(run)
    return current


def _require_token(entry: Entry | None, run: Run) -> Entry:
    if entry is None or entry.run.token != run.token:
        raise superseded(run)
    return entry


def _serving(entries: Entries, group: str) -> Run:
    return serving_of([e.state for e in entries.values() if e.state.status == SERVING], group).run
