"""The bulk path of a rebuild: a generation built from the whole log, step by step, each committed when it is done.

A process that is killed is followed by one that goes on from the last step that was committed. A log of more than
``CHUNK_RECORDS`` is folded in chunks of offsets: the first is loaded, each later one merged into the tables like a live
batch, and the views are made from the tables at the end (docs/decisions/0036).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from eventstore.schema_registry import RegisteredSchema
from projections.declaring.any_table import AnyTable
from projections.declaring.columns import ColumnType, hidden
from projections.declaring.group import ERASURES, ProjectionGroup
from projections.declaring.views import noted_references, view_behind
from projections.environment import Environment
from projections.faults import FORGOTTEN
from projections.lifecycle.between_batches import forgotten_by_serving
from projections.logs.offsets import OffsetRange, Offsets, bounded
from projections.logs.ranges import not_unpacked_in, require_unpacked, still_not_unpacked
from projections.logs.set_aside import SetAside
from projections.spark.bulk import RecordCounts, WholeTables, whole_tables
from projections.spark.exchange import are_few
from projections.spark.failures import described
from projections.spark.judging import bad_records, late_in_log
from projections.spark.live.applying import BatchApplier, opened_letters
from projections.spark.live.prepared import PreparedQueries
from projections.spark.views.disclosing import Disclosure
from projections.spark.views.view_functions import personal_columns
from projections.stores.layout import GenerationLayout, TableLayout, ViewLayout
from projections.stores.runs import BUILDING, BUILT, SERVING, Run, decode_progress, encode_progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

from projections.lifecycle.progress import ProgressMeter, counted_once


def load_state(environment: Environment, frame: DataFrame, place: TableLayout, *, rows: int) -> int:
    """Load a table's rows into a generation that has no readers yet; returns how many there were."""
    return environment.keeper.load(frame, place.state, rows=rows)


def stored_tables(
    environment: Environment,
    group: ProjectionGroup,
    layout: GenerationLayout,
    registry: Mapping[int, RegisteredSchema],
    *,
    records: int,
    also: Mapping[str, ColumnType] | None = None,
) -> WholeTables:
    """The tables that a log of so many records was folded into; rows that are many are read by the executors.

    ``also`` are further columns of their state.
    """
    few = are_few(records)

    def stored(name: str) -> DataFrame:
        place = layout.tables[name]
        columns = {**place.table.sliced, "_deleted": ColumnType("boolean"), **(also or {})}
        return environment.keeper.stored(place, columns, few=few)

    return WholeTables(stored, group, Disclosure(registry, environment.keys), environment.small, few)


# At 150,000 to 300,000 records a second, about what is read in one or two minutes: so much a kill may cost.
CHUNK_RECORDS: Final = 20_000_000


@dataclass(frozen=True)
class BuildState:
    """What a build reads, and what of it is complete: ``first`` is where its first chunk ends, ``ends`` where it does.

    ``tables`` and ``views`` are the rows of those that are loaded, ``indexed`` says which of the two have their keys;
    ``topics`` has the topics' ids, ``categories`` those of the tables that are folded from events; ``begun`` is in
    seconds since 1970. ``references`` has those of each view, or its stages, which only Spark knows where they are
    inferred, and ``personal`` the columns of each view and each table with values of a person. ``signatures`` has one
    for each view, and ``seconds`` is what the build took,
    ``view_seconds`` what each view did.
    """

    first: Offsets
    ends: Offsets
    columns: Mapping[str, list[str]]
    tables: Mapping[str, int] = field(default_factory=dict)
    views: Mapping[str, int] = field(default_factory=dict)
    indexed: tuple[str, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, list[Any]] = field(default_factory=dict)
    personal: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    begun: float = 0.0
    signatures: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    view_seconds: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the runs row keeps it."""
        return vars(self) | {"first": encode_progress(self.first), "ends": encode_progress(self.ends)}

    @staticmethod
    def of_json(stored: Mapping[str, Any]) -> BuildState:
        """From the runs row."""
        offsets = {name: decode_progress(stored[name]) for name in ("first", "ends")}
        return BuildState(**(dict(stored) | offsets | {"indexed": tuple(stored["indexed"])}))


@dataclass(frozen=True)
class Build:
    """A generation under construction: its run, which we hold, its tables, and how far it is.

    ``resumed``, from what another process had committed; ``complete``, with nothing left of the bulk path; ``known``,
    without the records in batches that the serving generation could not unpack either, and those it has forgotten.
    """

    run: Run
    layout: GenerationLayout
    state: BuildState
    known: SetAside
    resumed: bool = False
    complete: bool = False


def begin(environment: Environment, group: ProjectionGroup, columns: Mapping[str, Any], whole: OffsetRange) -> Build:
    """Go on with the unfinished generation of this definition, or begin another; unfinished ones of others are removed.

    ``whole`` is the log as it is now; a generation of topics that were recreated since is of no use.
    """
    store, names = environment.store, {name: list(types) for name, types in columns.items()}
    ids, known = dict(environment.log.topic_ids(group.topics)), _not_unpacked(environment, group, columns, whole)
    known |= forgotten_by_serving(environment, group, columns)
    for earlier in store.states(group.name, BUILDING, BUILT):
        if earlier.run.fingerprint == group.fingerprint() and earlier.built:
            state = BuildState.of_json(earlier.built)
            usable = state.columns == names and state.topics == ids and _is_within(state.ends, whole.end)
            if usable and not _has_waited(environment, group, state):
                layout, complete = store.layout(group, earlier.run, columns), earlier.status == BUILT
                start = earlier.progress or whole.start
                next_chunk = bounded(start, state.ends, max_records=CHUNK_RECORDS).without(ERASURES)
                known |= _too_large(environment, group, next_chunk)
                return Build(store.claim(earlier.run), layout, state, known, resumed=True, complete=complete)
    run, layout = store.begin_generation(group, columns)
    state = BuildState(
        _first_chunk(whole), whole.end, names, topics=ids, categories=_categories(group),
        references=noted_references(group.all_views), begun=time.time(),
        personal=_personal(environment, group), signatures=group.signatures(),
    )  # fmt: skip
    store.record(run, built=state.to_json())
    return Build(run, layout, state, known)


def _not_unpacked(
    environment: Environment, group: ProjectionGroup, columns: Mapping[str, Any], whole: OffsetRange
) -> SetAside:
    """What the serving generation was made without as it could not be unpacked, if that still holds.

    A long log is read by executors, whose client has another limit: their rows would differ for no other reason.
    """
    store, noted = environment.store, SetAside.nothing()
    for state in store.states(group.name, SERVING) if group.bad_records != "fail" else ():
        noted |= environment.keeper.noted(state, store.layout(group, state.run, columns))
    with environment.log.open() as log:
        return still_not_unpacked(log, noted, whole)


def _too_large(environment: Environment, group: ProjectionGroup, left: OffsetRange) -> SetAside:
    """What no client with a limit unpacks of the chunk whose reading may have ended the process before.

    Spark's client has no limit: a record of some bytes that unpacks to more than the heap holds ends the JVM. Raises
    RecordNotUnpacked where the group tolerates no bad record.
    """
    with environment.log.open() as log:
        if group.bad_records == "fail":
            require_unpacked(log, left)
        return not_unpacked_in(log, left)


def _personal(environment: Environment, group: ProjectionGroup) -> dict[str, dict[str, list[str]]]:
    """The columns of each view and each table with values of a person. A key is open: rows are found by it."""
    views = personal_columns(environment.spark, group)
    tables = {name: sorted(table.personal) for name, table in group.tables.items()}
    open_keys = {view.name: sorted(views[view.name].difference(view.key)) for view in group.stages}
    return {"tables": tables, "views": open_keys}


def _categories(group: ProjectionGroup) -> dict[str, str]:
    return {name: t.category for name, t in group.tables.items() if t.category and t.is_dense and not t.append_only}


def _has_waited(environment: Environment, group: ProjectionGroup, state: BuildState) -> bool:
    """Whether chunks are left, and topics may have lost deletions in them since the first was read."""
    retention = environment.log.deletion_retention([topic for topic in group.topics if topic in state.ends])
    if not retention or state.first == state.ends:  # what is left behind the ends is the live run's to judge
        return False
    return time.time() - state.begun > min(retention.values()).total_seconds()


def _is_within(ends: Offsets, now: Offsets) -> bool:
    pairs = [(o, now.get(t, {}).get(p, -1)) for t, parts in ends.items() for p, o in parts.items()]
    return set(ends) == set(now) and all(end <= present for end, present in pairs)


def _first_chunk(whole: OffsetRange) -> Offsets:
    """Erasures are no records: what views show is opened by the keys there are when they are made."""
    events = whole.without(ERASURES)
    end = bounded(events.start, events.end, max_records=CHUNK_RECORDS).end
    return {**whole.end, **end}


class Builder:
    """Takes a build to its end."""

    def __init__(self, environment: Environment, group: ProjectionGroup, build: Build, meter: ProgressMeter) -> None:
        self._environment, self._store, self._keeper = environment, environment.store, environment.keeper
        self._group = group
        self._run, self._layout, self.state = build.run, build.layout, build.state
        self._resumed, self._complete, self._known = build.resumed, build.complete, build.known
        self._meter = meter
        self._counts = RecordCounts(environment.spark)
        self._noting = threading.Lock()
        self._beginning = {t: dict.fromkeys(parts, 0) for t, parts in self.state.ends.items()}

    @property
    def records(self) -> int:
        """The records of the whole build, as offsets count them."""
        return OffsetRange(self._beginning, self.state.ends).without(ERASURES).records

    def run(self) -> None:
        """Load tables and views, then index them; what is complete already is left alone."""
        if self._complete:
            return
        self._meter.expect(self.records, before=self._done())
        registry = self._environment.log.schemas(self._group.avro_changelogs)
        with described(f"projection group {self._group.name}"), ExitStack() as stack:
            whole = None
            if missing := [name for name in self._layout.tables if name not in self.state.tables]:
                with self._meter.step("plan"):
                    whole = stack.enter_context(self._whole_tables(registry))
                with self._meter.step("tables"):
                    self._load_tables(whole, missing)
            if self._merge_chunks() or missing != list(self._layout.tables):
                whole = None  # no longer all that there is, or not all of it made by this process
            if self._layout.views.keys() - self.state.views.keys():
                with self._meter.step("views"):
                    records = self.records
                    self._load_views(
                        whole or stored_tables(self._environment, self._group, self._layout, registry, records=records)
                    )
        with self._meter.step("index"):
            self._index("tables")
            self._index("views")
            self._keeper.finish(self._run, self._layout)

    def _whole_tables(self, registry: Mapping[int, RegisteredSchema]) -> AbstractContextManager[WholeTables]:
        offsets = OffsetRange(self._beginning, self.state.first)
        aside = self._set_aside(offsets, registry)
        return whole_tables(self._environment, self._group, offsets, registry, aside=aside)

    def _set_aside(self, offsets: OffsetRange, registry: Mapping[int, RegisteredSchema]) -> SetAside:
        """Find what the first chunk is folded without, and keep it as live batches do."""
        known = self._known.within_range(offsets)
        bad = bad_records(self._environment, self._group, offsets, registry, known=known.but(FORGOTTEN))
        with opened_letters(self._environment.log, self._group) as letters:
            if letters is not None and bad:
                letters.send(bad, attempts=1)
        aside = bad | known.of_kind(FORGOTTEN)
        late = late_in_log(self._environment, self._group, offsets, registry, aside=aside)
        self._keeper.set_aside(self._run, self._layout, aside, late=late, rows=offsets.records)
        return aside

    def _load_tables(self, whole: WholeTables, missing: list[str]) -> None:
        """Load tables side by side, so that one's COPY fills the pauses of another's fold."""

        def load(name: str) -> None:
            tables = self._layout.tables[name]
            if self._resumed:
                self._keeper.empty(tables.state)
            with self._counts.counted(name):
                records = self._records_of(name)
                rows = load_state(self._environment, whole.frame(name), tables, rows=records)
            with self._noting:
                self._table_loaded(name, rows)

        with self._meter.watched(self._done), ThreadPoolExecutor(max_workers=len(missing)) as pool:
            list(pool.map(load, missing))

    def _table_loaded(self, name: str, rows: int) -> None:
        """With the last table the first chunk is complete: the state stands at its end."""
        loaded = {**self.state.tables, name: rows}
        is_last = loaded.keys() >= self._layout.tables.keys()
        self._note(dataclasses.replace(self.state, tables=loaded), progress=self.state.first if is_last else None)

    def _records_of(self, table: str) -> int:
        return OffsetRange(self._beginning, self.state.first).only(self._layout.tables[table].table.topic).records

    def _done(self) -> int:
        """The records that all tables of their topic have, or are about to."""
        topics = {name: tables.table.topic for name, tables in self._layout.tables.items()}
        by_table = {name: self._done_by(name) for name in topics}
        progress = self._store.progress(self._run)
        merged = OffsetRange(self.state.first, progress).without(ERASURES).records if progress else 0
        return counted_once(by_table, topics) + merged

    def _done_by(self, table: str) -> int:
        records = self._records_of(table)
        return records if table in self.state.tables else min(records, self._counts.read(table))

    def _merge_chunks(self) -> bool:
        """Merge what the first chunk left into the tables, as live batches that no view sees; returns whether any."""
        progress = self._store.progress(self._run)
        if progress == self.state.ends:
            return progress != self.state.first
        with self._meter.step("chunks"), self._meter.watched(self._done):
            self._index("tables")
            with self._environment.log.open() as log, PreparedQueries(self._environment.small) as queries:
                batches = self._keeper.batches(log, self._group, self._run, self._layout, queries, views=False)
                with opened_letters(self._environment.log, self._group) as letters:
                    # No schema is on its way behind records that have been there for long.
                    applier = BatchApplier(batches, letters, patience=0.0, known=self._known.within_range)
                    while progress != self.state.ends:
                        offsets = bounded(progress, self.state.ends, max_records=CHUNK_RECORDS)
                        applier.apply(offsets)
                        progress = offsets.end
        return True

    def _load_views(self, tables: WholeTables) -> None:
        rows = sum(self.state.tables.values())
        for view in self._layout.views.values():
            if view.name not in self.state.views:
                if self._resumed:
                    self._keeper.empty(view.view)
                self._require_few(view)
                begun = time.perf_counter()
                with described(f"projection group {self._group.name}, {view.definition.place}"):
                    result = tables.apply(view.definition, view.stored_columns)
                    written = self._keeper.load(result, view.view, rows=rows)
                views = {**self.state.views, view.name: written}
                seconds = {**self.state.view_seconds, view.name: time.perf_counter() - begun}
                self._note(dataclasses.replace(self.state, views=views, view_seconds=seconds))

    def _require_few(self, view: ViewLayout) -> None:
        """Refuse now what the first batch would be refused for."""
        if hidden(view.stored_columns):  # which are brought forward
            return
        read = [view.definition.table(name) for name in view.definition.tables]
        self._group.require_few(view.definition, sum(map(self._rows_of, read)))

    def _rows_of(self, table: AnyTable) -> int:
        view = view_behind(table)
        return self.state.tables[self._group.name_of(table)] if view is None else self.state.views[view.name]

    def _index(self, what: str) -> None:
        if what not in self.state.indexed:
            seconds = round(time.time() - self.state.begun, 1)
            state = dataclasses.replace(self.state, indexed=(*self.state.indexed, what), seconds=seconds)
            self._keeper.index(self._run, self._layout, what, built=state.to_json())
            self.state = state

    def _note(self, state: BuildState, *, progress: Offsets | None = None) -> None:
        """Note what has become complete; tables are loaded side by side, so one at a time."""
        self._store.record(self._run, built=state.to_json(), progress=progress)
        self.state = state
